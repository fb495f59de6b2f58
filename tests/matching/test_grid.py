"""The grid against a plain list: whoever is within reach is given, whatever was put, removed and moved before."""

import math
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.sizes import examples
from tidings.matching.index.kernels import grid as grid_kernels
from tidings.matching.index.kernels import hash_table
from tidings.matching.index.spatial.grid import Grid
from tidings.matching.reference import geo_distance

Place = tuple[float, ...]
plane = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 5e-324, 1e-170, 1e16, float(2**53), float(2**60), 1e100, 1e308, -1e308]),
    st.floats(-20, 20),
    st.integers(-8, 8).map(float),
    st.floats(allow_nan=False, allow_infinity=False),
)
latitudes = st.one_of(st.sampled_from([0.0, 90.0, -90.0, 89.999999, 60.0, 90.1, -1e308]), st.floats(-90, 90))
longitudes = st.one_of(
    st.sampled_from([0.0, 180.0, -180.0, 179.99999, -179.99999, 360.0, 540.0, -1e-20, 2e6, 1e15, -1e300]),
    st.floats(-180, 180),
    st.floats(-1000, 1000),
)
radii = st.one_of(
    st.sampled_from([0.0, -0.0, -1.0, 1.0, 2.0, 5e-324, 1e-12, 1e9, 2.0**62, 2.0**63, 1e308, math.inf]),
    st.floats(0, 20),
)
metres = st.one_of(
    st.sampled_from([0.0, -1.0, 1.0, 20_000.0, 1e6, 1e7, 18.9e6, 19.9e6, 20_015_115.0, 1e300, math.inf]),
    st.floats(0, 1e6),
    st.floats(0, 2e7),
)


def is_within(geo: bool, radius: float, here: Place, there: Place) -> bool:
    if geo:
        apart = geo_distance(*here, *there)
        return apart is not None and apart <= radius
    return all(abs(one - two) <= radius for one, two in zip(here, there, strict=True))


def count(grid: Grid, place: tuple[float, ...], limit: int = 1 << 30) -> int:
    """How many entries are looked at, no further than the limit."""
    looked = 0
    while looked < limit and grid.near_if_few(place, looked) is None:
        looked += 1
    return looked


class Listed:
    """A grid, and the same as a plain list."""

    def __init__(self, dimensions: int, geo: bool) -> None:
        self.geo = geo
        self.dimensions = dimensions
        self.grid = Grid(dimensions, geo)
        self.subscriptions: dict[int, tuple[int, float]] = {}
        self.places: dict[int, Place | None] = {}

    def put(self, position: int, client: int, radius: float) -> None:
        self.grid.put(position, client, radius, self.places.get(client))
        self.subscriptions[position] = client, radius

    def move(self, client: int, place: Place | None) -> None:
        self.places[client] = place
        self.grid.move(client, place)

    def move_many(self, places: dict[int, Place | None]) -> None:
        self.places.update(places)
        nowhere = (math.nan,) * self.dimensions
        rows = [nowhere if place is None else place for place in places.values()]
        given = np.array(rows, np.float64).reshape(len(rows), self.dimensions)
        self.grid.move_many(np.array(list(places), np.int32), given)

    def check(self, here: Place) -> None:
        given = self.grid.near(here).tolist()
        assert len(given) == len(set(given))
        assert set(given) <= self.subscriptions.keys()
        for position, (client, radius) in self.subscriptions.items():
            place = self.places.get(client)
            if place is None or radius < 0:
                assert position not in given
            elif is_within(self.geo, radius, here, place):
                assert position in given, (here, place, radius)
        assert len(self.grid) == len(self.subscriptions)
        looked_at = count(self.grid, here)
        assert len({self.subscriptions[position][0] for position in given}) <= looked_at
        assert count(self.grid, here, 2) >= min(2, looked_at)


class GridMachine(RuleBasedStateMachine):
    """Random histories, checked after every step at the places where someone was lately."""

    dimensions: ClassVar = 2
    geo: ClassVar = False
    coordinates: ClassVar[tuple[st.SearchStrategy[float], ...]] = (plane, plane)
    reaches: ClassVar[st.SearchStrategy[float]] = radii

    @initialize()
    def begin(self) -> None:
        self.listed = Listed(self.dimensions, self.geo)
        self.asked: list[Place] = [(0.0,) * self.dimensions]

    def place(self, data: st.DataObject) -> Place | None:
        if data.draw(st.integers(0, 9)) == 0:
            return None
        drawn = tuple(data.draw(one) for one in self.coordinates)
        self.asked = [*self.asked[-4:], drawn]
        return drawn

    @rule(position=st.integers(0, 30), client=st.integers(0, 5), data=st.data())
    def put(self, position: int, client: int, data: st.DataObject) -> None:
        self.listed.put(position, client, data.draw(self.reaches))

    @rule(position=st.integers(0, 30))
    def remove(self, position: int) -> None:
        if position in self.listed.subscriptions:
            del self.listed.subscriptions[position]
            self.listed.grid.remove(position)
        else:
            with pytest.raises(KeyError):
                self.listed.grid.remove(position)

    @rule(client=st.integers(0, 6), data=st.data())
    def move(self, client: int, data: st.DataObject) -> None:
        self.listed.move(client, self.place(data))

    @rule(clients=st.lists(st.integers(0, 6), unique=True), data=st.data())
    def move_many(self, clients: list[int], data: st.DataObject) -> None:
        self.listed.move_many({client: self.place(data) for client in clients})

    @rule()
    def resize(self) -> None:
        self.listed.grid.resize()

    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        self.place(data)

    @invariant()
    def agree(self) -> None:
        for here in self.asked:
            self.listed.check(here)
        in_table = int((self.listed.grid.arrays.table[:, hash_table.KIND] != 0).sum())
        assert in_table <= 3 * len(self.listed.subscriptions)


class LineMachine(GridMachine):
    dimensions = 1
    coordinates = (plane,)


class SphereMachine(GridMachine):
    geo = True
    coordinates = (latitudes, longitudes)
    reaches = metres


TestGridMachine = GridMachine.TestCase
TestLineMachine = LineMachine.TestCase
TestSphereMachine = SphereMachine.TestCase
TestGridMachine.settings = TestLineMachine.settings = TestSphereMachine.settings = settings(
    examples(40, 2_000), stateful_step_count=25
)


@examples(300, 20_000)
@given(latitudes, longitudes, metres, st.floats(0, 2 * math.pi), st.floats(0, 1.2), st.integers(-2, 2))
def test_circles_on_the_sphere(lat: float, lon: float, radius: float, bearing: float, share: float, turns: int) -> None:
    """A client just inside or outside of a circle around the event, over poles and the date line."""
    grid = Grid(2, geo=True)
    arc = min(radius * share, 3e7) / 6_371_008.8
    phi, turn = math.radians(max(-90.0, min(90.0, lat))), math.radians(lon)
    sine = math.sin(phi) * math.cos(arc) + math.cos(phi) * math.sin(arc) * math.cos(bearing)
    there = math.asin(max(-1.0, min(1.0, sine)))
    east = math.atan2(math.sin(bearing) * math.sin(arc) * math.cos(phi), math.cos(arc) - math.sin(phi) * sine)
    place = math.degrees(there), math.degrees(turn + east) + 360 * turns
    grid.put(7, 1, radius, place)
    given = grid.near((lat, lon)).tolist()
    if is_within(True, radius, (lat, lon), place):
        assert given == [7]
    apart = geo_distance(lat, lon, *place)
    is_known_well = radius < 1.8e7 and abs(lon) < 1e6
    if is_known_well and (apart is None or apart > 1.001 * radius + 1):
        assert given == []


@pytest.mark.parametrize("geo", [False, True])
def test_only_those_at_hand_are_looked_at(geo: bool) -> None:
    grid = Grid(2, geo)
    spread = np.random.default_rng(5).uniform(-80, 80, (4_000, 2))
    metres_a_degree = 111_195.0 if geo else 1.0
    for i, (x, y) in enumerate(spread.tolist()):
        grid.put(i, i, metres_a_degree, (x, y))
    for x, y in ((0.0, 0.0), (70.0, 50.0), (-79.0, 79.0)):
        within = [i for i, there in enumerate(spread.tolist()) if is_within(geo, metres_a_degree, (x, y), tuple(there))]
        assert sorted(grid.near((x, y)).tolist()) == within
        assert count(grid, (x, y)) < 60
    grid.put(4_000, 4_000, 1e300, (50.0, 50.0))
    assert 4_000 in grid.near((-50.0, -50.0)).tolist()
    assert count(grid, (-50.0, -50.0)) < 60
    assert count(grid, (-50.0, -50.0), 3) == 3


def test_coordinates_too_large_for_a_level_look_at_that_level_only() -> None:
    grid = Grid(1)
    for i in range(100):
        grid.put(i, i, 1.0, (1e18 + 128 * i,))
        grid.put(100 + i, i, 1e9, (1e18 + 128 * i,))
    assert count(grid, (1e18,)) == 200
    assert set(range(100)) <= set(grid.near((1e18,)).tolist())  # a difference of 128 may be rounding
    assert grid.near((5e17,)).tolist() == []


class TestChurn:
    def test_nothing_is_left_behind(self) -> None:
        """Ever new clients, positions and cells, a hundred at a time."""
        grid = Grid()
        random = np.random.default_rng(1)
        sizes = set()
        for i in range(20_000):
            x, y, more = random.uniform(-1e6, 1e6, 3).tolist()
            grid.put(i, i // 2, 10.0 ** (i % 7), (x, y))
            grid.move(i // 2, (y, more))
            if i >= 100:
                grid.remove(i - 100)
            if i > 1_000:
                sizes.add(grid.nbytes)
        assert len(grid) == 100
        assert max(sizes) < 80_000
        for i in range(19_900, 20_000):
            grid.remove(i)
        assert len(grid) == 0
        assert not grid.arrays.table[:, hash_table.KIND].any()
        assert grid.near((0.0, 0.0)).tolist() == []

    def test_after_a_crowd_the_arrays_shrink(self) -> None:
        grid = Grid()
        before = grid.nbytes
        for i in range(5_000):
            grid.put(i, i, 1.0, (0.0, float(i)))
        assert len(grid.near((0.0, 7.0))) == 3
        crowded = grid.nbytes
        for i in range(4_990):
            grid.remove(i)
        assert grid.nbytes < crowded / 50
        assert sorted(grid.near((0.0, 4_995.0)).tolist()) == [4_994, 4_995, 4_996]
        for i in range(4_990, 5_000):
            grid.remove(i)
        assert grid.nbytes <= 2 * before

    def test_wandering_clients_leave_no_cells(self) -> None:
        grid = Grid(2, geo=True)
        for i in range(50):
            grid.put(i, i, 500.0, (0.0, 0.0))
        before = grid.nbytes
        random = np.random.default_rng(2)
        for _ in range(200):
            places = np.column_stack([random.uniform(-90, 90, 50), random.uniform(-180, 180, 50)])
            grid.move_many(np.arange(50, dtype=np.int32), places)
        assert grid.nbytes == before
        assert (grid.arrays.table[:, hash_table.KIND] != 0).sum() <= 150


def test_longitudes_of_very_many_turns_are_never_missed() -> None:
    grid = Grid(2, geo=True)
    many, plain = 1e15, 1e15 % 360
    assert is_within(True, 100_000.0, (10.0, plain), (10.0, many))
    grid.put(1, 1, 100_000.0, (10.0, many))
    grid.put(2, 2, 100_000.0, (10.0, plain))
    assert sorted(grid.near((10.0, plain)).tolist()) == [1, 2]
    assert sorted(grid.near((10.0, many)).tolist()) == [1, 2]


def test_whole_numbers_and_read_only_arrays_compile_nothing_anew() -> None:
    grid = Grid()
    grid.put(1, 1, 5.0, (0.0, 0.0))
    places = np.asfortranarray([[3.0, 4.0], [math.nan, 0.0]])
    places.flags.writeable = False
    grid.move_many(np.array([1, 9], np.int64).astype(np.int32), places)
    known = len(grid_kernels.near.signatures), len(grid_kernels.move_many.signatures)
    assert grid.near((2, 3)).tolist() == [1]
    grid.move_many(np.array([1], np.int32), places[:1])
    assert (len(grid_kernels.near.signatures), len(grid_kernels.move_many.signatures)) == known


def test_more_than_the_buffer_holds() -> None:
    grid = Grid()
    for i in range(3_000):
        grid.put(i, i % 7, 1.0, (1.0, 1.0))
    assert sorted(grid.near((1.5, 0.5)).tolist()) == list(range(3_000))
    assert count(grid, (1.5, 0.5)) == 7


def test_a_position_that_is_put_again_is_replaced() -> None:
    grid = Grid()
    grid.put(1, 1, 5.0, (0.0, 0.0))
    grid.put(1, 2, 1.0, (100.0, 0.0))
    assert grid.near((0.0, 0.0)).tolist() == []
    assert grid.near((100.0, 0.0)).tolist() == [1]
    assert len(grid) == 1


def test_who_has_no_place_is_near_nothing() -> None:
    grid = Grid()
    grid.put(1, 1, math.inf, None)
    assert grid.near((0.0, 0.0)).tolist() == []
    grid.move(1, (1e308, -1e308))
    assert grid.near((-1e308, 1e308)).tolist() == [1]
    assert grid.near(None).tolist() == []
    grid.move(1, None)
    assert grid.near((1e308, -1e308)).tolist() == []


def test_places_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="2 clients need 2 x 2 coordinates"):
        Grid().move_many(np.zeros(2, np.int32), np.zeros((2, 1)))
