"""Imports point one way, and what is not pure stands only where it may: checked on the syntax tree of every file."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.structure import (
    FILES,
    MODULE_PAGE,
    SOURCE,
    class_names,
    classes,
    function_lengths,
    import_cycles,
    module_of,
    module_page,
    modules_in_folder,
    tree_of,
)

ALL = {
    *("model", "language", "matching", "policy", "journal", "filters", "coerce", "text_index", "configuration"),
    *(
        "routing",
        "engine",
        "runtime",
        "hub",
        "simulation",
        "spark",
        "protocol",
        "broker",
        "client",
        "cli",
        "security",
        "services",
        "testing",
    ),
}
# A package may import itself and these; `filters` is the public face at the top of the package, `coerce` what reads for
# it.
MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "language": {"model"},
    "matching": {"model"},
    "policy": {"model"},
    "journal": {"model"},
    "security": {"model", "journal"},  # its files are written as a journal writes its own
    "configuration": {"model"},
    "filters": {"model", "language", "matching"},
    "coerce": {"model", "policy", "filters"},
    "text_index": {"model", "language", "matching", "filters"},
    "routing": {"model", "language", "matching", "policy", "filters"},
    "engine": {"model", "language", "matching", "policy", "security", "journal", "filters", "text_index", "routing"},
    "runtime": {"model", "journal", "filters", "coerce", "security", "engine"},
    "hub": {"runtime", "model", "policy", "security", "journal", "coerce", "engine"},
    "simulation": {
        *("model", "language", "matching", "policy", "journal", "filters", "coerce", "text_index", "configuration"),
        *("routing", "engine", "protocol", "security"),
    },
    # A pipeline may publish into a hub that it opens, and through a broker that runs elsewhere: as a client of it.
    "spark": {
        *("model", "language", "matching", "policy", "journal", "filters", "text_index", "configuration"),
        *("engine", "hub", "client", "security"),
    },
    "protocol": {"model", "language", "matching", "policy", "journal", "filters", "text_index", "routing", "engine"},
    "broker": {
        *("model", "language", "matching", "policy", "journal", "filters", "coerce", "text_index", "configuration"),
        *("routing", "engine", "runtime", "protocol", "security"),
    },
    # A client speaks with brokers, and holds none.
    "client": {"model", "language", "matching", "policy", "security", "filters", "coerce", "protocol"},
    # Key management centres and discovery nodes are clients of the overlay, too.
    "services": {"model", "security", "client", "filters", "journal", "configuration"},
    "testing": {"model", "hub", "simulation", "broker"},
    "cli": ALL - {"testing"},
    "__init__": ALL,
    "_version": set(),
    "__main__": {"cli"},
}
ONLY_IN = {
    "pyspark": {"spark"},
    "asyncio": {"broker", "client", "cli", "services", "testing"},
    "ssl": {"broker", "client"},
    "uvicorn": {"broker"},
    "prometheus_client": {"broker"},
    "time": {"runtime", "broker", "client", "cli", "services", "testing"},  # in the runtime: its clock
    "random": {"simulation", "broker", "client", "cli"},
    "secrets": {"runtime", "broker", "client", "cli", "security", "services"},
    "cryptography": {"security"},
    "pytest": {"testing"},
    "typer": {"cli"},
    "rich": {"cli"},
}


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(path)))


def imports_of(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            yield from ([f"tidings.{alias.name}" for alias in node.names] if module == "tidings" else [module])


def wrong_imports(path: Path) -> Iterator[str]:
    package = package_of(path)
    for name in imports_of(path):
        top, *rest = name.split(".")
        if top == "tidings" and rest and rest[0] not in ("_version", "__version__"):
            if rest[0] != package and rest[0] not in MAY_IMPORT[package]:
                yield f"{path.relative_to(SOURCE)}: {package} must not import {name}"
        elif top in ONLY_IN and package not in ONLY_IN[top]:
            yield f"{path.relative_to(SOURCE)}: {top} is not for {package}"


def test_imports_point_one_way() -> None:
    assert [wrong for path in FILES for wrong in wrong_imports(path)] == []


def test_only_the_runtimes_clock_asks_for_time_and_chance() -> None:
    asking = {
        path.name for path in FILES if package_of(path) == "runtime" and {"time", "secrets"} & set(imports_of(path))
    }
    assert asking == {"clock.py"}


def test_only_one_file_of_the_simulation_draws_numbers() -> None:
    asking = {path.name for path in FILES if package_of(path) == "simulation" and "random" in imports_of(path)}
    assert asking == {"rng.py"}


def attributes_of(path: Path) -> set[str]:
    return {node.attr for node in nodes_of(path) if isinstance(node, ast.Attribute)}


def test_only_the_journal_syncs() -> None:
    syncing = [path for path in FILES if attributes_of(path) & {"fsync", "fdatasync", "F_FULLFSYNC"}]
    assert syncing == [SOURCE / "journal" / "disk.py"]


def test_only_where_it_may_chance_is_asked_for() -> None:
    asking = [path for path in FILES if attributes_of(path) & {"urandom", "getrandom"}]
    assert [path for path in asking if package_of(path) not in ONLY_IN["random"]] == []


def test_every_package_is_known() -> None:
    assert {package_of(path) for path in FILES} <= MAY_IMPORT.keys()


MODULES_IN_FOLDER = 20
LINES_OF_FUNCTION = 70
# Longer functions, with their lines. A number may become smaller, and a line may go.
_LONG_FUNCTIONS = {
    "tidings.engine.engine.handle": 81,
    "tidings.matching.index.kernels.covering.containing": 73,
    "tidings.matching.index.kernels.programs.run_programs": 84,
    "tidings.spark.pipeline.pipeline.__init__": 71,
}
_LARGEST_CYCLE = 5
# Packages whose modules import each other for their types, and their largest cycle. A number may become smaller.
_LARGER_CYCLES = {"engine": 33, "client": 12, "hub": 8}
MEMBERS_OF_PORT = 8
# Larger protocols, with their members. A number may become smaller, and a line may go.
_LARGER_PORTS = {
    "tidings.client.transport.Transport": 18,
    "tidings.runtime.inboxes.Inbox": 15,
}
_PARTICIPLE = re.compile(r"(ing|ed)$")
# What the field or the papers call so.
_PARTICIPLES_OF_THE_FIELD = frozenset(
    {"compiled", "covering", "deferred", "encoding", "forwarding", "key_issuing", "merging", "on_sealed", "rendering"}
)
_METAPHORS = frozenset({"book", "court", "desk", "door", "gatehouse", "house", "room", "shelf", "told", "held", "kept"})


def test_no_folder_is_crowded() -> None:
    """Split a larger folder by what its modules are about, or merge those that hold one small thing."""
    assert {folder: count for folder, count in modules_in_folder().items() if count > MODULES_IN_FOLDER} == {}


def test_a_public_class_name_means_one_thing() -> None:
    """Name a class so that the name alone says which one it is: `SimulatedClock`, not a second `Clock`."""
    assert {name: homes for name, homes in class_names().items() if len(homes) > 1} == {}


def test_functions_fit_on_a_screen() -> None:
    """Move a part that has a name of its own into a function. Docstrings do not count."""
    long = {name: lines for lines, name in function_lengths() if lines > LINES_OF_FUNCTION}
    assert {name: lines for name, lines in long.items() if lines > _LONG_FUNCTIONS.get(name, 0)} == {}
    assert _LONG_FUNCTIONS.keys() <= long.keys()


def test_import_cycles_do_not_grow() -> None:
    """Imports for types count. Let the lower module define a protocol for what it needs of the higher one."""
    limits = [_LARGER_CYCLES.get(cycle[0].split(".")[1], _LARGEST_CYCLE) for cycle in import_cycles()]
    assert [cycle for cycle, limit in zip(import_cycles(), limits, strict=True) if len(cycle) > limit] == []


def test_ports_are_small() -> None:
    """Give a function that needs more than a few members of an object another port beside this one."""
    nodes = [(module_of(path), node) for path in FILES for node in tree_of(path).body if isinstance(node, ast.ClassDef)]
    ports = [
        f"{module}.{node.name}"
        for module, node in nodes
        if any(ast.unparse(base).partition("[")[0] == "Protocol" for base in node.bases)
    ]
    public_classes = classes()
    members = {port: public_classes[port].members for port in ports}
    assert {port: count for port, count in members.items() if count > _LARGER_PORTS.get(port, MEMBERS_OF_PORT)} == {}


def test_modules_are_named_by_nouns() -> None:
    """A module has the name of what it defines; `told.py` and `serving.py` say nothing to somebody who looks for it."""
    named = {path.stem for path in FILES}
    assert {name for name in named if _PARTICIPLE.search(name)} <= _PARTICIPLES_OF_THE_FIELD
    assert {name for name in named if _METAPHORS & set(name.split("_"))} == set()


def test_the_map_has_every_package_and_names_files_that_exist() -> None:
    text = (SOURCE.parents[1] / "docs" / "explanation" / "architecture.md").read_text()
    packages = {module_of(path).split(".")[1] for path in FILES if path.parent != SOURCE}
    assert {package for package in packages if f"`{package}/`" not in text} == set()
    glossary = (SOURCE.parents[1] / "docs" / "glossary.md").read_text()
    for file in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", text + glossary):
        assert (SOURCE / file).exists() or (SOURCE.parents[1] / file).exists(), file


def test_every_module_is_on_the_map() -> None:
    """Run `python -m tests.structure --write` after a module has come, gone or changed its first line."""
    assert MODULE_PAGE.read_text() == module_page()


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
