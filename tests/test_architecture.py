"""Imports point one way, and what is not pure stands only where it may: checked on the syntax tree of every file."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "tidings"
ALL = {
    *("model", "language", "matching", "policy", "journal", "filters", "texts", "index", "configuration"),
    *(
        "routing",
        "engine",
        "hub",
        "simulation",
        "spark",
        "protocol",
        "live",
        "client",
        "cli",
        "security",
        "services",
        "testing",
    ),
}
# A room may import itself and these; `filters` is the public face at the top of the package, `texts` what reads for it.
MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "language": {"model"},
    "matching": {"model"},
    "policy": {"model"},
    "journal": {"model"},
    "security": {"model", "journal"},  # its files are written as a journal writes its own
    "configuration": {"model"},
    "filters": {"model", "language", "matching"},
    "texts": {"model", "policy", "filters"},
    "index": {"model", "language", "matching", "filters"},
    "routing": {"model", "language", "matching", "policy", "filters"},
    "engine": {"model", "language", "matching", "policy", "security", "journal", "filters", "index", "routing"},
    "hub": {"model", "language", "matching", "policy", "security", "journal", "filters", "texts", "index", "engine"},
    "simulation": {
        *("model", "language", "matching", "policy", "journal", "filters", "texts", "index", "configuration"),
        *("routing", "engine", "protocol", "security"),
    },
    # A pipeline may publish into a hub that it opens, and through a broker that runs elsewhere: as a client of it.
    "spark": {
        *("model", "language", "matching", "policy", "journal", "filters", "index", "configuration"),
        *("engine", "hub", "client", "security"),
    },
    "protocol": {"model", "language", "matching", "policy", "journal", "filters", "index", "routing", "engine"},
    "live": {
        *("model", "language", "matching", "policy", "journal", "filters", "texts", "index", "configuration"),
        *("routing", "engine", "hub", "protocol", "security"),
    },
    # A client speaks with brokers, and holds none.
    "client": {"model", "language", "matching", "policy", "security", "filters", "texts", "protocol"},
    # Key management centres and discovery nodes are clients of the overlay, too.
    "services": {"model", "security", "client", "filters", "journal", "configuration"},
    "testing": {"model", "hub", "simulation", "live"},
    "cli": ALL - {"testing"},
    "__init__": ALL,
    "_version": set(),
    "__main__": {"cli"},
}
ONLY_IN = {
    "pyspark": {"spark"},
    "asyncio": {"live", "client", "cli", "services", "testing"},
    "ssl": {"live", "client"},
    "uvicorn": {"live"},
    "prometheus_client": {"live"},
    "time": {"hub", "live", "client", "cli", "services", "testing"},  # in the hub: its clock
    "random": {"simulation", "live", "client", "cli"},
    "secrets": {"hub", "live", "client", "cli", "security", "services"},
    "cryptography": {"security"},
    "pytest": {"testing"},
    "typer": {"cli"},
    "rich": {"cli"},
}
FILES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


def imports_of(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            yield from ([f"tidings.{alias.name}" for alias in node.names] if module == "tidings" else [module])


def wrong_imports(path: Path) -> Iterator[str]:
    room = room_of(path)
    for name in imports_of(path):
        top, *rest = name.split(".")
        if top == "tidings" and rest and rest[0] not in ("_version", "__version__"):
            if rest[0] != room and rest[0] not in MAY_IMPORT[room]:
                yield f"{path.relative_to(SOURCE)}: {room} must not import {name}"
        elif top in ONLY_IN and room not in ONLY_IN[top]:
            yield f"{path.relative_to(SOURCE)}: {top} is not for {room}"


def test_imports_point_one_way() -> None:
    assert [wrong for path in FILES for wrong in wrong_imports(path)] == []


def test_only_the_hubs_clock_asks_for_time_and_chance() -> None:
    asking = {path.name for path in FILES if room_of(path) == "hub" and {"time", "secrets"} & set(imports_of(path))}
    assert asking == {"clock.py"}


def test_only_one_file_of_the_simulation_draws_numbers() -> None:
    asking = {path.name for path in FILES if room_of(path) == "simulation" and "random" in imports_of(path)}
    assert asking == {"chance.py"}


def attributes_of(path: Path) -> set[str]:
    return {node.attr for node in nodes_of(path) if isinstance(node, ast.Attribute)}


def test_only_the_journal_syncs() -> None:
    syncing = [path for path in FILES if attributes_of(path) & {"fsync", "fdatasync", "F_FULLFSYNC"}]
    assert syncing == [SOURCE / "journal" / "disk.py"]


def test_only_where_it_may_chance_is_asked_for() -> None:
    asking = [path for path in FILES if attributes_of(path) & {"urandom", "getrandom"}]
    assert [path for path in asking if room_of(path) not in ONLY_IN["random"]] == []


def test_every_room_is_known() -> None:
    assert {room_of(path) for path in FILES} <= MAY_IMPORT.keys()


HELP = """
import contextlib, sys
from tidings.cli import main
sys.argv = ["tidings", "--help"]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr):
    main()
"""


@pytest.mark.process
@pytest.mark.parametrize("command", ["import tidings; tidings.Filter", HELP])
def test_starting_does_not_load_heavy_libraries(command: str) -> None:
    probe = f"{command}\nimport sys; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout.split()
    assert "tidings" in loaded
    assert not {"pyspark", "numba", "numpy", "pandas", "pyarrow", "matplotlib", "hypothesis"} & set(loaded)


@pytest.mark.process
def test_import_alone_loads_nothing_but_itself() -> None:
    probe = "import tidings, sys; print(*[m for m in sys.modules if m.startswith(('tidings', 'lark', 'lxml', 're2'))])"
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["tidings._version", "tidings"] or set(loaded) == {"tidings", "tidings._version"}


def test_everything_public_can_be_had() -> None:
    import tidings

    for name in tidings.__all__:
        assert getattr(tidings, name) is not None
    assert set(tidings.__all__) == {"__version__", *tidings._HOMES}
    with pytest.raises(AttributeError, match="has no attribute 'Fliter'"):
        _ = tidings.Fliter


def test_everything_of_security_can_be_had() -> None:
    import tidings

    names = {"Authority", "KeyManagementCentre", "DiscoveryNode", "Identity", "Token", "seal", "open_sealed"}
    assert names <= set(tidings.security.__all__)
    for name in tidings.security.__all__:
        assert getattr(tidings.security, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Tokne'"):
        _ = tidings.security.Tokne
