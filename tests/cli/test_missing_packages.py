"""A base install, without any extra: every verb says in one line what to install, and the others work."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidings as td
from tests.cli.command import environment
from tests.limits import PATIENCE
from tidings.model.packages import DISTRIBUTIONS, EXTRAS, installation, missing_package

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PIPELINE = ROOT / "examples" / "pipeline" / "pipeline.toml"
SCENARIO = str(ROOT / "examples" / "scenarios" / "cars.toml")
LIVE, SPARK = "pip install 'tidings[live]'", "pip install 'tidings[spark]'"
POLICY = str(td.policies.remove("n"))
# The words of a command that needs an optional package, and how the one line ends that it says without it.
COMMANDS: dict[str, tuple[list[str], str]] = {
    "broker": (["broker"], f"uvicorn is not installed: {LIVE}"),
    "overlay run": (["overlay", "run", "--brokers", "1", "--port", "0", "--folder", "overlay"], LIVE),
    "history": (["history", "hub"], f"pyspark is not installed: {SPARK}"),
    "policy try": (["policy", "try", "trim.policy", "hub"], f"pyspark is not installed: {SPARK}"),
    "pipeline run": (["pipeline", "run", str(PIPELINE)], f"pyspark is not installed: {SPARK}"),
    "simulate": (["simulate", SCENARIO, "--picture", "cars.png"], "pip install matplotlib"),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a process answers in which optional packages cannot be imported: see `base_install`."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "trim.policy").write_text(POLICY)
    with td.Hub(folder / "hub") as hub:
        hub.client("ann").publish({"n": 1})
    blocked = str(Path(__file__).parent / "blocked")
    variables = environment(
        PYTHONPATH=os.pathsep.join([blocked, *(path for path in sys.path if path), str(ROOT)]),
        TIDINGS_HTTP_LISTEN="127.0.0.1:0",  # a broker without an HTTP port needs no optional package
    )
    words = json.dumps([words for words, _ in COMMANDS.values()])
    command = [sys.executable, "-m", "tests.cli.base_install", str(folder), str(PIPELINE), words]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=ROOT, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_verb_has_its_help(base: Any) -> None:
    assert base["help"]["broker"] == 0
    assert set(base["help"].values()) == {0}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_verb_says_in_one_line_what_to_install(base: Any, name: str) -> None:
    code, err = base["commands"][list(COMMANDS).index(name)]
    assert code == 1
    assert len(err.splitlines()) == 1, err
    assert COMMANDS[name][1] in err
    assert err.startswith("tidings: ")


def test_what_cannot_be_imported_is_for_the_http_port_and_for_spark(base: Any) -> None:
    """Whatever else needs an optional package imports it when it is used."""
    live = {"tidings.broker.ops.prometheus", "tidings.broker.ops.http"}
    assert set(base["modules"]) == {*live, "tidings.spark.source"}
    for module, said in base["modules"].items():
        assert said.endswith(LIVE if module in live else SPARK)


def test_a_program_is_told_what_spark_needs(base: Any) -> None:
    said = f"pyspark is not installed: {SPARK}"
    assert base["spark"] == dict.fromkeys(("session", "register", "Pipeline.from_file"), said)


@pytest.mark.parametrize("package", [*EXTRAS, *DISTRIBUTIONS])
def test_every_optional_package_has_a_command_that_installs_it(package: str) -> None:
    missing = missing_package(ModuleNotFoundError("no", name=f"{package}.part"))
    assert str(missing) == f"{package} is not installed: {installation(package)}"
    assert isinstance(missing, ImportError)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("[PACKAGE_NOT_INSTALLED] Pandas >= 2.2.0 must be installed; however, it was not found.", "spark"),
        ("[PACKAGE_NOT_INSTALLED] grpcio >= 1.67.0 must be installed; however, it was not found.", "connect"),
        ("[PACKAGE_NOT_INSTALLED] grpcio-status >= 1.67.0 must be installed; however, it was not found.", "connect"),
    ],
)
def test_what_pyspark_lacks_is_understood(words: str, extra: str) -> None:
    assert f"pip install 'tidings[{extra}]'" in str(missing_package(ImportError(words)))


@pytest.mark.parametrize(
    "error",
    [
        ImportError("cannot import name 'DataFrame' from 'pandas'", name="pandas"),
        ImportError("pandas >= 2.2.0 must be installed; however, your version was 1.5.3."),
    ],
)
def test_a_package_that_is_there_and_of_no_use_is_not_called_missing(error: ImportError) -> None:
    assert str(missing_package(error)) == f"pandas cannot be imported ({error}): {SPARK}"


def test_another_failed_import_is_no_matter_of_extras() -> None:
    assert missing_package(ModuleNotFoundError("no", name="msgspec")) is None
    assert missing_package(ImportError("cannot import name 'x'")) is None
