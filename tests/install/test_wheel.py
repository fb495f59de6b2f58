"""The wheel, installed with each extra into an environment of its own: what works there, and what is missing."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.limits import PATIENCE

ROOT = Path(__file__).parents[2]
EXTRAS = ["", "live", "spark", "connect", "all"]
INSTALLATION = 600.0  # seconds for pip, which may have to load large packages
ROUND_TRIP = """
import tidings as td
hub = td.Hub()
held = hub.client("car").subscribe("n > 1")
hub.client("camera").publish({"n": 2})
assert [note.attributes["n"] for note in held.take()] == [2]
"""


def execute(*words: str, seconds: float = PATIENCE) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    done = execute(sys.executable, "-m", "pip", "wheel", *options, str(ROOT), seconds=INSTALLATION)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("tidings-*.whl")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("extra", EXTRAS, ids=lambda extra: extra or "base")
def test_the_wheel_works_with_its_extras(wheel: Path, tmp_path: Path, extra: str) -> None:
    venv.create(tmp_path / "environment", with_pip=True)
    programs = tmp_path / "environment" / "bin"
    wanted = f"tidings[{extra}] @ {wheel.as_uri()}" if extra else f"tidings @ {wheel.as_uri()}"
    done = execute(str(programs / "python"), "-m", "pip", "install", wanted, seconds=INSTALLATION)
    assert done.returncode == 0, done.stderr

    tidings, python = str(programs / "tidings"), str(programs / "python")
    assert execute(tidings, "--help").returncode == 0
    done = execute(tidings, "warm", seconds=INSTALLATION)  # else what follows compiles the kernels, each for itself
    assert done.returncode == 0, done.stderr
    assert execute(tidings, "filter", "a = 1", "--event", '{"a": 1}').returncode == 0
    done = execute(python, "-c", ROUND_TRIP)
    assert done.returncode == 0, done.stderr
    check_broker(tidings, is_installed=extra in ("live", "all"))
    check_spark(python, is_installed=extra in ("spark", "connect", "all"))


def check_broker(tidings: str, *, is_installed: bool) -> None:
    """A broker runs without any extra; its HTTP port needs the extra `live`."""
    assert start_broker(tidings, http="") == (0, "")
    missing = "tidings: uvicorn is not installed: pip install 'tidings[live]'\n"
    assert start_broker(tidings, http="127.0.0.1:0") == ((0, "") if is_installed else (1, missing))


def start_broker(tidings: str, *, http: str) -> tuple[int, str]:
    """Start a broker and have it stop once it listens; return its exit code and the error that ended it."""
    words = [tidings, "broker", "--listen", "127.0.0.1:0", "--attached", "--json"]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "TIDINGS_HTTP_LISTEN": http}
    with subprocess.Popen(words, text=True, env=environment, **streams) as process:  # type: ignore[call-overload]
        listens = "127.0.0.1:" in process.stdout.readline()
        _, err = process.communicate(timeout=PATIENCE)  # closes its standard input: an attached broker stops
        assert listens == (process.returncode == 0)
        return process.returncode, "" if listens else err


def check_spark(python: str, *, is_installed: bool) -> None:
    """Without Java: whether the packages are there."""
    if is_installed:
        assert execute(python, "-c", "import pyspark.sql, pandas, tidings.spark.source").returncode == 0
        return
    done = execute(python, "-c", "from tidings.spark import session; session()")
    assert done.stderr.splitlines()[-1].endswith("pyspark is not installed: pip install 'tidings[spark]'")
