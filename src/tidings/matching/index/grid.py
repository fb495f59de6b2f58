"""Where the subscribers are: who may be within reach of an event, without looking at everyone.

A client's subscriptions are kept by the power of two at or above their radius, each such level with cells of its own
size, so that one enormous radius slows nobody else down. A client that moves is one small write.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidings.matching.index import cells, lookup, places
from tidings.matching.reference import EARTH_RADIUS_METRES

Place = tuple[float, ...]  # one or two coordinates; on the sphere degrees of latitude and longitude
_HALF_ROUND = 19_000_000.0  # metres; near the other side of the earth distances are not exact enough for cells
_LEAST_DEGREES = 2.0**-14
_NAN = math.nan


class Grid:
    """Subscriptions with a reach, by position, of clients with a place. Whoever calls holds a lock."""

    def __init__(self, dimensions: int = 2, geo: bool = False) -> None:
        self._dimensions = dimensions
        self._geo = geo
        self._out = np.empty(256, np.int32)
        self._arrays = self._made(0, 0)

    def __len__(self) -> int:
        """How many subscriptions there are."""
        return int(self._arrays.state[cells.LIVE_POSITIONS])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays) + self._out.nbytes

    @property
    def arrays(self) -> "_Arrays":
        """As the kernels take them, until the next change."""
        return self._arrays

    def put(self, position: int, client: int, radius: float, place: Place | None) -> None:
        """A subscription of a client, which is at the place now; the radius is in metres on the sphere."""
        self._take_out(position)
        level, limit = (_level_on_sphere if self._geo else _level)(radius)
        x, y = _coordinates(place)
        while not cells.put(*self._arrays, position, client, level, limit, x, y):
            self.resize()

    def remove(self, position: int) -> None:
        """Takes a subscription out; `KeyError` if there is none at the position."""
        if not self._take_out(position):
            raise KeyError(position)

    def move(self, client: int, place: Place | None) -> None:
        """The client is at the place from now on; without one it is in no event's reach."""
        state, entries, records, _, table = self._arrays
        x, y = _coordinates(place)
        while not cells.move(state, entries, records, table, client, x, y):
            self.resize()
            state, entries, records, _, table = self._arrays

    def moved_many(self, clients: npt.NDArray[np.int32], coordinates: npt.NDArray[np.float64]) -> None:
        """The same of many: a row of coordinates each, with NaN in it where there is no place."""
        if coordinates.shape != (len(clients), self._dimensions):
            raise ValueError(f"{len(clients)} clients need {len(clients)} x {self._dimensions} coordinates")
        # Copies: the kernels take no arrays that are read-only, have gaps or lie the other way round.
        clients, coordinates = np.array(clients, np.int32), np.array(coordinates, np.float64, order="C")
        done = 0
        while True:
            state, entries, records, _, table = self._arrays
            done = cells.move_many(state, entries, records, table, clients, coordinates, done)
            if done == len(clients):
                return
            self.resize()

    def make_room(self) -> None:
        """After a kernel had none for a move."""
        self.resize()

    def near(self, place: Place | None) -> npt.NDArray[np.int32]:
        """The positions of the subscriptions whose client may be within its reach of the place, each of them once."""
        return self.near_if_few(place, 1 << 30)  # type: ignore[return-value]

    def near_if_few(self, place: Place | None, limit: int) -> npt.NDArray[np.int32] | None:
        """The same, or None if more than `limit` clients would have to be looked at."""
        x, y = _coordinates(place)
        found = cells.near(*self._arrays, self._out, x, y, limit)
        if found > len(self._out):
            self._out = np.empty(2 * found, np.int32)
            cells.near(*self._arrays, self._out, x, y, limit)
        return None if found < 0 else self._out[:found].copy()

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays, by name."""
        return self._arrays._asdict()

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """What `saved` gave."""
        self._arrays = _Arrays(**{name: array.copy() for name, array in saved.items()})

    def _take_out(self, position: int) -> bool:
        was_there, is_wasteful = cells.remove(*self._arrays, position)
        if is_wasteful:
            self.resize()
        return bool(was_there)

    def resize(self) -> None:
        """Arrays that fit what lives, with some room."""
        old = self._arrays
        self._arrays = self._made(int(old.state[cells.LIVE]), int(old.state[cells.LIVE_POSITIONS]))
        cells.take_over(*self._arrays, *old)
        if len(self._out) > 4 * len(self._arrays.slots) + 256:
            self._out = np.empty(256, np.int32)

    def _made(self, entries: int, positions: int) -> "_Arrays":
        entries, positions = entries + (entries >> 1) + 16, positions + (positions >> 1) + 16
        keys = positions + 2 * entries  # an entry has at most a cell and a client of its own
        state = np.zeros(cells.STATE, np.int64)
        state[cells.SHAPE] = places.SPHERE if self._geo else places.PLANE if self._dimensions == 2 else places.LINE
        state[cells.SEED] = hash("grid")  # differs from process to process, as Python's hashes of strings do
        state[cells.FREE] = state[cells.FREE_POSITIONS] = -1
        state[cells.FIRSTS :] = -1
        return _Arrays(
            state,
            np.zeros((entries, cells.FIRST + 1), np.int32),
            np.zeros(cells.RECORDS_AN_ENTRY * entries * cells.RECORD.itemsize, np.uint8),
            np.zeros((positions, cells.BEFORE + 1), np.int32),
            np.zeros((1 << (4 * keys // 3).bit_length(), lookup.VALUE + 1), np.int32),
        )


class _Arrays(NamedTuple):
    """What the kernels take, one by one: a tuple of arrays as an argument would cost more than all of them."""

    state: npt.NDArray[np.int64]
    entries: npt.NDArray[np.int32]
    records: npt.NDArray[np.uint8]
    slots: npt.NDArray[np.int32]
    table: npt.NDArray[np.int32]


def _coordinates(place: Place | None) -> tuple[float, float]:
    """As floats in any case: the kernels are compiled for those."""
    if place is None:
        return _NAN, _NAN
    return (float(place[0]), float(place[1])) if len(place) == 2 else (float(place[0]), 0.0)


def _level(radius: float) -> tuple[int, float]:
    """The level of a radius, and how far from an event a client may be."""
    if radius < 0:
        return places.NOBODY, 0.0
    if not radius <= 2.0 ** (places.EVERYONE - 1 - places.ORIGIN):
        return places.EVERYONE, math.inf if math.isnan(radius) else radius * (1 + cells.ROUNDING)
    if radius == 0:
        return places.ORIGIN, 0.0  # whole numbers, most likely, that are to be the same
    return max(_power(radius) - 1 + places.ORIGIN, 0), radius * (1 + cells.ROUNDING)


def _power(radius: float) -> int:
    """The power of two at or above it."""
    mantissa, exponent = math.frexp(radius)
    return exponent - 1 if mantissa == 0.5 else exponent


def _level_on_sphere(metres: float) -> tuple[int, float]:
    """The same; how far is the square of the chord, in radii of the earth."""
    if metres < 0:
        return places.NOBODY, 0.0
    if not metres < _HALF_ROUND:
        return places.EVERYONE, 5.0
    angle = (metres * (1 + 1e-9) + 0.01) / EARTH_RADIUS_METRES  # more than `geo_distance` can be wrong by
    level = _power(max(math.degrees(angle), _LEAST_DEGREES)) + places.ORIGIN
    return level, (2 * math.sin(angle / 2)) ** 2


def place_of(context: Mapping[str, Any] | None, names: tuple[str, ...]) -> Place | None:
    """Where a publisher is; None if it does not say."""
    found = []
    for name in names:
        value = None if context is None else context.get(name)
        if type(value) is not float and (not isinstance(value, int | float) or isinstance(value, bool)):
            return None
        found.append(float(value))
    return tuple(found)
