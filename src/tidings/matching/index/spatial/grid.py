"""A grid over the subscribers' places: which subscriptions may have an event within their radius?

A client's subscriptions are grouped into levels by the power of two at or above their radius. Each level has cells of
its own size, so that a huge radius slows no other subscription down. When a client moves, only a few records change.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidings.matching.index.kernels import cell_geometry, grid, hash_table
from tidings.matching.reference import EARTH_RADIUS_METRES

Place = tuple[float, ...]  # one or two coordinates; on the sphere latitude and longitude in degrees
_HALF_CIRCUMFERENCE = 19_000_000.0  # metres; close to half the circumference, distances are not exact enough for cells
_LEAST_DEGREES = 2.0**-14
_NAN = math.nan


class Grid:
    """Subscriptions with a radius, by position, around clients with a place. The caller must hold a lock."""

    def __init__(self, dimensions: int = 2, geo: bool = False) -> None:
        self._dimensions = dimensions
        self._geo = geo
        self._out = np.empty(256, np.int32)
        self._arrays = self._allocated(0, 0)

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return int(self._arrays.state[grid.LIVE_POSITIONS])

    @property
    def nbytes(self) -> int:
        """The size of the arrays in bytes."""
        return sum(array.nbytes for array in self._arrays) + self._out.nbytes

    @property
    def arrays(self) -> "_Arrays":
        """The arrays as the kernels take them; valid until the next change."""
        return self._arrays

    def put(self, position: int, client: int, radius: float, place: Place | None) -> None:
        """Add or replace a subscription.

        Args:
            position: The subscription's position.
            client: The row of its client.
            radius: The radius; on the sphere in metres.
            place: The client's current place, if it has one.
        """
        self._remove(position)
        level, limit = (_level_on_sphere if self._geo else _level)(radius)
        x, y = _coordinates(place)
        while not grid.put(*self._arrays, position, client, level, limit, x, y):
            self.resize()

    def remove(self, position: int) -> None:
        """Remove a subscription; raise `KeyError` if there is none at the position."""
        if not self._remove(position):
            raise KeyError(position)

    def move(self, client: int, place: Place | None) -> None:
        """Set the place of a client; without a place, no event is near it."""
        state, entries, records, _, table = self._arrays
        x, y = _coordinates(place)
        while not grid.move(state, entries, records, table, client, x, y):
            self.resize()
            state, entries, records, _, table = self._arrays

    def move_many(self, clients: npt.NDArray[np.int32], coordinates: npt.NDArray[np.float64]) -> None:
        """Set the places of many clients: a row of coordinates for each, with NaN where a client has no place."""
        if coordinates.shape != (len(clients), self._dimensions):
            raise ValueError(f"{len(clients)} clients need {len(clients)} x {self._dimensions} coordinates")
        # Copies: the kernels take only writable, contiguous arrays in C order.
        clients, coordinates = np.array(clients, np.int32), np.array(coordinates, np.float64, order="C")
        done = 0
        while True:
            state, entries, records, _, table = self._arrays
            done = grid.move_many(state, entries, records, table, clients, coordinates, done)
            if done == len(clients):
                return
            self.resize()

    def make_room(self) -> None:
        """Enlarge the arrays after a kernel found no room for a move."""
        self.resize()

    def near(self, place: Place | None) -> npt.NDArray[np.int32]:
        """Return the positions of the subscriptions whose radius may contain the place, each of them once."""
        return self.near_if_few(place, 1 << 30)  # type: ignore[return-value]

    def near_if_few(self, place: Place | None, limit: int) -> npt.NDArray[np.int32] | None:
        """Return what `near` does, or None if more than `limit` clients would have to be examined."""
        x, y = _coordinates(place)
        count = grid.near(*self._arrays, self._out, x, y, limit)
        if count > len(self._out):
            self._out = np.empty(2 * count, np.int32)
            grid.near(*self._arrays, self._out, x, y, limit)
        return None if count < 0 else self._out[:count].copy()

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays by name."""
        return self._arrays._asdict()

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Load the arrays that `saved` returned."""
        self._arrays = _Arrays(**{name: array.copy() for name, array in saved.items()})

    def _remove(self, position: int) -> bool:
        was_there, is_wasteful = grid.remove(*self._arrays, position)
        if is_wasteful:
            self.resize()
        return bool(was_there)

    def resize(self) -> None:
        """Replace the arrays by ones that fit the present contents, with some room."""
        old = self._arrays
        self._arrays = self._allocated(int(old.state[grid.LIVE]), int(old.state[grid.LIVE_POSITIONS]))
        grid.take_over(*self._arrays, *old)
        if len(self._out) > 4 * len(self._arrays.slots) + 256:
            self._out = np.empty(256, np.int32)

    def _allocated(self, entries: int, positions: int) -> "_Arrays":
        entries, positions = entries + (entries >> 1) + 16, positions + (positions >> 1) + 16
        keys = positions + 2 * entries  # an entry needs at most a key for its cell and one for its client
        state = np.zeros(grid.STATE, np.int64)
        state[grid.SHAPE] = (
            cell_geometry.SPHERE if self._geo else cell_geometry.PLANE if self._dimensions == 2 else cell_geometry.LINE
        )
        state[grid.SEED] = hash("grid")  # different in each process, as Python's string hashes are
        state[grid.FREE] = state[grid.FREE_POSITIONS] = -1
        state[grid.FIRSTS :] = -1
        return _Arrays(
            state,
            np.zeros((entries, grid.FIRST + 1), np.int32),
            np.zeros(grid.RECORDS_AN_ENTRY * entries * grid.RECORD.itemsize, np.uint8),
            np.zeros((positions, grid.BEFORE + 1), np.int32),
            np.zeros((1 << (4 * keys // 3).bit_length(), hash_table.VALUE + 1), np.int32),
        )


class _Arrays(NamedTuple):
    """The arrays of a grid; kernels take them one by one, because passing a tuple costs more than all of them."""

    state: npt.NDArray[np.int64]
    entries: npt.NDArray[np.int32]
    records: npt.NDArray[np.uint8]
    slots: npt.NDArray[np.int32]
    table: npt.NDArray[np.int32]


def _coordinates(place: Place | None) -> tuple[float, float]:
    """Return two floats in any case, since the kernels are compiled for floats."""
    if place is None:
        return _NAN, _NAN
    return (float(place[0]), float(place[1])) if len(place) == 2 else (float(place[0]), 0.0)


def _level(radius: float) -> tuple[int, float]:
    """Return the level of a radius in the plane, and the largest distance of a client within it, rounding included."""
    if radius < 0:
        return cell_geometry.NOBODY, 0.0
    if not radius <= 2.0 ** (cell_geometry.EVERYONE - 1 - cell_geometry.ORIGIN):
        return cell_geometry.EVERYONE, math.inf if math.isnan(radius) else radius * (1 + grid.ROUNDING)
    if radius == 0:
        return cell_geometry.ORIGIN, 0.0  # most likely integers that must be equal
    return max(_power(radius) - 1 + cell_geometry.ORIGIN, 0), radius * (1 + grid.ROUNDING)


def _power(radius: float) -> int:
    """Return the exponent of the power of two at or above the radius."""
    mantissa, exponent = math.frexp(radius)
    return exponent - 1 if mantissa == 0.5 else exponent


def _level_on_sphere(metres: float) -> tuple[int, float]:
    """Return the level of a radius on the sphere, and the square of the chord, in radii of the earth, that it spans."""
    if metres < 0:
        return cell_geometry.NOBODY, 0.0
    if not metres < _HALF_CIRCUMFERENCE:
        return cell_geometry.EVERYONE, 5.0
    angle = (metres * (1 + 1e-9) + 0.01) / EARTH_RADIUS_METRES  # with a margin above the error of `geo_distance`
    level = _power(max(math.degrees(angle), _LEAST_DEGREES)) + cell_geometry.ORIGIN
    return level, (2 * math.sin(angle / 2)) ** 2


def place_of(context: Mapping[str, Any] | None, names: tuple[str, ...]) -> Place | None:
    """Return a publisher's place from its context; None if a coordinate is not a number."""
    coordinates = []
    for name in names:
        value = None if context is None else context.get(name)
        if type(value) is not float and (not isinstance(value, int | float) or isinstance(value, bool)):
            return None
        coordinates.append(float(value))
    return tuple(coordinates)
