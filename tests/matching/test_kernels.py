"""Kernels: compiled before they are needed and never later, kept where that is possible, and within their arrays."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import event

import tidings as td
from tests.limits import PATIENCE
from tests.matching import history
from tests.sizes import variants
from tidings.matching.index.kernels import grid, grid_match, jit, match, programs, segments
from tidings.matching.index.spatial.grid import Grid

ROOT = Path(__file__).parent.parent.parent
_RUN = 10 * PATIENCE  # seconds for whole histories, and for compiling where `make` has not done so
COMPILING = "compiling the matching kernels, which takes about"
NOT_KEPT = "the compiled kernels cannot be kept"


class Listening(event.Listener):  # type: ignore[misc]
    """What was compiled meanwhile."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_start(self, told: Any) -> None:
        self.names.append(told.data["dispatcher"].__name__)

    def on_end(self, told: Any) -> None:
        pass


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    td.Index()
    listening = Listening()
    with event.install_listener("numba:compile", listening):
        yield listening.names


class TestOnceReady:
    @pytest.mark.parametrize("seed", variants(2, range(4)))
    def test_nothing_is_compiled_whatever_happens(self, seed: int, compiled: list[str]) -> None:
        assert history.play(seed, 120) > 0
        assert compiled == []

    def test_nothing_is_compiled_for_a_crowd(self, compiled: list[str]) -> None:
        assert history.crowd() > 2_000_000
        assert compiled == []

    def test_places_may_come_as_they_lie(self, compiled: list[str]) -> None:
        places = np.asfortranarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        places.setflags(write=False)
        grid = Grid()
        for client in range(3):
            grid.put(client, client, 0.5, None)
        grid.move_many(np.arange(6, dtype=np.int32)[::2] // 2, places)
        assert [grid.near((x, x + 1)).tolist() for x in (1.0, 3.0, 5.0)] == [[0], [1], [2]]
        assert compiled == []

    def test_every_kernel_has_one_signature_and_takes_no_other(self) -> None:
        td.Index()
        found = [one.dispatcher for one in jit.KERNELS]
        assert len(found) == jit.count() > 10
        assert all(len(one.signatures) == 1 for one in found)
        with pytest.raises(TypeError, match="No matching definition"):
            segments.hash_clusters(np.zeros(4096, np.int8))
        with pytest.raises(TypeError, match="No matching definition"):
            match.in_event_order(*(np.zeros(2, np.int64)[::2] for _ in range(3)))

    def test_whatever_python_calls_is_a_kernel(self) -> None:
        """The functions of these files that have no underscore and are called elsewhere are all in the list."""
        known = {one.dispatcher.__name__ for one in jit.KERNELS}
        index = ROOT / "src" / "tidings" / "matching" / "index"
        for module in (segments, grid, match):
            name = module.__name__.rpartition(".")[2]
            others = "".join(path.read_text() for path in index.rglob("*.py") if str(path) != module.__file__)
            called = {one for one in vars(module) if f"{name}.{one}(" in others}
            assert called
            assert called <= known
        assert {programs.run_programs.__name__, programs.write_rows.__name__, programs.last_changes.__name__} <= known
        assert {grid_match.near_event.__name__, grid_match.near_events.__name__} <= known


PROBE = """
import logging, sys
logging.basicConfig(format="%(name)s: %(message)s")
from tidings.matching.index.kernels import jit
jit.KERNELS[:] = [one for one in jit.KERNELS if one.dispatcher.__name__ == "in_event_order"]
outcome = jit.ready()
jit.ready()
import numpy as np
from tidings.matching.index.kernels.match import in_event_order
order = np.arange(2)
assert in_event_order(order, order + 1, np.array([7, 8], np.int32))[1].tolist() == [7, 8]
print(outcome.compiled, outcome.cache)
"""


def run(code: str, **environment: str) -> tuple[list[str], str]:
    """The words that a program prints, and what it complains about."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


class TestTheCache:
    @pytest.mark.process
    def test_what_is_not_there_is_compiled_with_a_warning_and_kept(self, tmp_path: Path) -> None:
        (compiled, cache), complaint = run(PROBE, NUMBA_CACHE_DIR=str(tmp_path))
        assert compiled == "1"
        assert tmp_path in Path(cache).parents
        assert complaint.startswith(f"tidings: {COMPILING}")
        assert "run `tidings warm` at installation" in complaint
        assert complaint.count("\n") == 1
        assert run(PROBE, NUMBA_CACHE_DIR=str(tmp_path)) == (["0", cache], "")

    @pytest.mark.process
    @pytest.mark.parametrize("kind", ["nbc", "nbi"])
    def test_what_is_damaged_is_compiled_anew(self, tmp_path: Path, kind: str) -> None:
        _, cache = run(PROBE, NUMBA_CACHE_DIR=str(tmp_path))[0]
        for path in Path(cache).glob(f"*.{kind}"):
            path.write_bytes(b"damaged")
        (compiled, _), complaint = run(PROBE, NUMBA_CACHE_DIR=str(tmp_path))
        assert compiled == "1"
        assert COMPILING in complaint
        (compiled, _), complaint = run(PROBE, NUMBA_CACHE_DIR=str(tmp_path))
        assert (compiled, complaint) == ("0", "")

    @pytest.mark.process
    def test_a_cache_that_vanishes_while_compiling_is_done_without(self, tmp_path: Path) -> None:
        vanish = f"import shutil; shutil.rmtree({str(tmp_path)!r}); open({str(tmp_path)!r}, 'w').close()"
        (compiled, cache), complaint = run(
            PROBE.replace("outcome =", f"{vanish}\noutcome ="), NUMBA_CACHE_DIR=str(tmp_path)
        )
        assert (compiled, cache) == ("1", "None")
        assert NOT_KEPT in complaint

    @pytest.mark.process
    def test_where_nothing_can_be_written_every_process_compiles(self, tmp_path: Path) -> None:
        (compiled, cache), complaint = run(PROBE, **read_only_installation(tmp_path))
        assert (compiled, cache) == ("1", "None")
        first, second = complaint.splitlines()
        assert COMPILING in first
        assert NOT_KEPT in second
        assert "set NUMBA_CACHE_DIR" in second

    @pytest.mark.slow
    def test_the_whole_index_works_where_nothing_can_be_written(self, tmp_path: Path) -> None:
        code = (
            "from tidings.matching.index.kernels.jit import ready; ready(lambda kernel: print(kernel, flush=True));"
            "import tidings as td; i = td.Index(); i.add('s', 'a = 1'); print(*i.match({'a': 1}))"
        )
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **read_only_installation(tmp_path)}
        with subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            lines = lines_of(process)
        assert process.returncode == 0
        assert len(lines) == jit.count() + 1
        assert lines[-1] == "s"


def lines_of(process: "subprocess.Popen[str]") -> list[str]:
    """What a program prints, if no line of it takes too long: it compiles everything, for longer than a test waits."""
    assert process.stdout is not None
    lines: list[str] = []
    while True:
        guard = threading.Timer(PATIENCE, process.kill)
        guard.start()
        line = process.stdout.readline()
        guard.cancel()
        if not line:
            return lines
        lines.append(line.rstrip())


def read_only_installation(tmp_path: Path) -> dict[str, str]:
    """A copy of the package with a file where the cache should be. (Permissions would not stop root.)"""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "tidings", tmp_path / "tidings", ignore=ignored)
    (tmp_path / "tidings" / "matching" / "index" / "kernels" / "__pycache__").touch()
    nowhere = "/dev/null/nowhere"
    return {"PYTHONPATH": str(tmp_path), "HOME": nowhere, "XDG_CACHE_HOME": nowhere, "NUMBA_CACHE_DIR": nowhere}


def checked_history(seeds: range) -> subprocess.CompletedProcess[str]:
    """Random histories with every access to an array checked. These kernels are compiled otherwise, so they have a
    cache of their own, in the virtual environment: `make` fills it before the tests begin, since that takes a minute.
    """
    cache = Path(sys.prefix) / "kernels-with-bounds-checked"
    environment = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "1", "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run(
        [sys.executable, "-m", "tests.matching.history", *map(str, seeds)],
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT / "src")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_RUN,
    )


@pytest.mark.process
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 60), marks=pytest.mark.slow)])
def test_no_kernel_reads_or_writes_beside_its_arrays(seeds: range) -> None:
    done = checked_history(seeds)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith(" matches\n")
