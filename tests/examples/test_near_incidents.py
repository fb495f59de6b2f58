"""The example on bus positions: a small world whose answer is known, and a random one beside a naive answer."""

import json
import math
import random
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.docs.shell import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HEADER = "vehicle_id,timestamp,speed,route_id,trip_id,latitude,longitude,trip_headsign"
START = datetime(2017, 3, 21, 5, tzinfo=UTC)
PLACE, DEPOT = (30.2672, -97.7431), (30.4, -97.6)
METRE = 1 / 111_195.08  # degrees of latitude


def at(minute: float) -> str:
    return (START + timedelta(minutes=minute)).isoformat()


def row(bus: int, minute: float, line: str, north: float = 0, speed: float = 0, place: Sequence[float] = PLACE) -> str:
    return f"{bus},{at(minute)},{speed},{line},1,{place[0] + north * METRE},{place[1]},to the {line}"


WORLD = [
    *(row(9, minute, "9") for minute in range(0, 16, 2)),  # stands, and says so at 10, 12 and 14
    *(row(1, 11 + k, "1", north=300 - 100 * k, speed=8) for k in range(3)),  # comes near, to 100 m at 13
    row(2, 11, "9", north=50, speed=8),  # the same route
    row(3, 11, "3", north=50, speed=0.5),  # does not move
    row(4, 11, "4", north=510, speed=8),  # not near enough
    row(5, 1, "5", north=50, speed=8),  # not heard of since
    row(6, 5, "6", north=50, speed=8),  # was near before
    row(6, 9, "6", north=5_000, speed=8),
    *(row(bus, minute, "7", place=DEPOT) for bus in (20, 21, 22) for minute in range(0, 16, 2)),  # many stand there
    row(8, 11, "8", north=50, speed=8, place=DEPOT),
    *(row(7, minute, "7", north=9_000 + 40 * minute) for minute in range(0, 16, 2)),  # creeps along
]
BROKEN = {
    "not as many values as columns": [f"30,{at(1)},1"],
    "no vehicle_id": [f",{at(1)},1,1,1,30,-97,x"],
    "no route_id": [f"30,{at(1)},1,,1,30,-97,x"],
    "timestamp is no time with an offset": ["30,2017-03-21T05:00:00,1,1,1,30,-97,x", "30,soon,1,1,1,30,-97,x"],
    "speed is not a number from 0 to 50 m/s": [
        f"30,{at(1)},113.9952,1,1,30,-97,x",
        f"30,{at(2)},NaN,1,1,30,-97,x",
        f"30,{at(3)},-1,1,1,30,-97,x",
    ],
    "latitude and longitude are no place": [f"30,{at(1)},1,1,1,north,-97,x", f"30,{at(2)},1,1,1,91,-97,x"],
    "latitude and longitude are 0: nobody knows the place": [f"30,{at(1)},1,1,1,0.0,0.0,x"],
    "the vehicle has another position at this time": [row(9, 0, "9", north=1)],
}


def csv(path: Path, rows: Sequence[str], header: str = HEADER) -> str:
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def example(*arguments: str) -> Result:
    import near_incidents

    app = typer.Typer()
    app.command()(near_incidents.main)
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "120", "NO_COLOR": "1"}, catch_exceptions=False)


def test_buses_that_stand_are_incidents(spark: "SparkSession", tmp_path: Path) -> None:
    rows = WORLD + [line for lines in BROKEN.values() for line in lines]
    random.Random(1).shuffle(rows)
    positions, picture, written = csv(tmp_path / "positions.csv", rows), tmp_path / "map.png", tmp_path / "all"
    done = example(positions, "--json", "--plot", str(picture), "--write", str(written))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["positions"] == {
        "read": len(rows),
        "rejected": {reason: len(lines) for reason, lines in sorted(BROKEN.items())},
    }
    assert (found["incidents"], found["reports"], found["encounters"], found["buses"]) == (1, 3, 1, 1)
    name = "bus 9 since 2017-03-21 05:00:00"
    assert found["most"] == [{"incident": name, "route": "9", "buses": 1, "routes": 1, "closest": 100.0}]
    assert picture.read_bytes().startswith(b"\x89PNG")
    (told,) = spark.read.parquet(str(written)).collect()
    assert (told["vehicle"], told["bus_route"], round(told["metres"])) == ("bus 1", "1", 100)
    assert told["since"].replace(tzinfo=UTC) == START + timedelta(minutes=12)
    shown = example(positions).stdout.splitlines()
    assert f"{len(rows)} positions read, 12 of them refused" in shown
    assert "1 buses came within 500 m of 1 of them: 1 encounters" in shown


def test_incidents_that_are_given(spark: "SparkSession", tmp_path: Path) -> None:
    place = f"{PLACE[0]},{PLACE[1]}"
    rows = [
        f"fire,{at(4)},9,{place},{at(6)}",  # bus 5 is known until 6, bus 6 comes at 5
        f"leak,{at(4)},5,{place},",  # on the route of bus 5, and over before bus 6 comes
        f"late,{at(6)},9,{place},{at(5)}",
        f"gone,{at(6)},9,0,0,",
        f"open,{at(6)},9,{place},never",
        f",{at(6)},9,{place},",
    ]
    incidents = csv(tmp_path / "incidents.csv", rows, "id,timestamp,route_id,latitude,longitude,until")
    done = example(csv(tmp_path / "positions.csv", WORLD), "--incidents", incidents, "--json", "--within", "60")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["incident rows"]["read"], sum(found["incident rows"]["rejected"].values())) == (6, 4)
    assert (found["incidents"], found["reports"], found["encounters"]) == (2, 4, 2)
    assert [(one["incident"], one["buses"], one["closest"]) for one in found["most"]] == [("fire", 2, 50.0)]


def far(one: tuple[float, float], other: tuple[float, float]) -> float:
    (a, b), (c, d) = (tuple(map(math.radians, place)) for place in (one, other))
    return 6_371_008.8 * math.acos(min(1, math.sin(a) * math.sin(c) + math.cos(a) * math.cos(c) * math.cos(b - d)))


def test_a_naive_answer_is_the_same(spark: "SparkSession", tmp_path: Path) -> None:
    draw = random.Random(5)
    buses: dict[int, list[tuple[Any, ...]]] = {}
    for bus in range(12):
        minutes = sorted(draw.sample(range(120), 25))
        buses[bus] = [
            (minute, draw.choice("abc"), draw.uniform(30, 30.02), draw.uniform(-97, -96.98), draw.choice([0, 5, 9]))
            for minute in minutes
        ]
    incidents = [(f"i{k}", draw.randrange(120), draw.choice("abc"), draw.uniform(30, 30.02), -96.99) for k in range(30)]
    expected = set()
    for name, minute, line, *place in incidents:
        for bus, known in buses.items():
            last = max((one for one in known if one[0] <= minute), default=None)
            if last is None or minute >= last[0] + 5 or last[1] == line or last[4] < 1:
                continue
            if far((last[2], last[3]), (place[0], place[1])) <= 500:
                expected.add((name, f"bus {bus}"))
    assert len(expected) > 5
    rows = [f"{bus},{at(t)},{speed},{line},1,{lat},{lon},x" for bus in buses for t, line, lat, lon, speed in buses[bus]]
    given = [f"{name},{at(minute)},{line},{lat},{lon}" for name, minute, line, lat, lon in incidents]
    turned = [",".join(reversed(one.split(","))) for one in [HEADER, *rows[::2]]]  # another file, other columns first
    positions = csv(tmp_path / "p.csv", rows[1::2]), csv(tmp_path / "q.csv", turned[1:], turned[0])
    incidents_file = csv(tmp_path / "i.csv", given, "id,timestamp,route_id,latitude,longitude")
    done = example(*positions, "--incidents", incidents_file, "--json", "--write", str(tmp_path / "all"))
    assert done.exit_code == 0, done.output
    found = spark.read.parquet(str(tmp_path / "all")).collect()
    assert {(one["incident"], one["vehicle"]) for one in found} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("arguments", "trouble"),
    [
        (["{}/nothing.csv"], "nothing.csv: Spark cannot read that"),
        (["{}/other.csv"], "there is no column vehicle_id; its header has id, x"),
        (["{}/good.csv", "--incidents", "{}/other.csv"], "other.csv: there is no column timestamp"),
        (["{}/good.csv", "--write", "{}"], "choose a folder that is not there yet"),
        (["{}/good.csv", "--plot", "{}/no/map.png"], "there is no folder"),
    ],
)
def test_errors_say_what_to_change(spark: "SparkSession", tmp_path: Path, arguments: list[str], trouble: str) -> None:
    csv(tmp_path / "good.csv", WORLD[:1])
    csv(tmp_path / "other.csv", ["1,2"], "id,x")
    done = example(*(one.format(tmp_path) for one in arguments))
    assert (done.exit_code, done.stdout) == (1, "")
    assert trouble in done.stderr


def test_it_is_a_script() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "near_incidents.py", "--help"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "--incidents" in done.stdout
