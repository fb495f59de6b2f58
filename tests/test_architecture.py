"""The tidy test: what a program can check of the code's structure. Each failure says what to do about it.

Imports point one way and form no large cycles; what is not pure stands only where it may; folders, functions,
parameters and protocols are small; names are nouns of the field, and each public class name means one thing; every
module is on the map. Limits that are not reached yet are written down with the present number, which may only fall.
`python -m tests.structure` prints the measures.
"""

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
    LARGE,
    MODULE_PAGE,
    PORT,
    SOURCE,
    class_names,
    function_lengths,
    functions_with_large_parameters,
    import_cycles,
    large_protocols,
    module_of,
    module_page,
    modules_in_folder,
    tree_of,
    words_of,
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
    wrong = [line for path in FILES for line in wrong_imports(path)]
    assert not wrong, (
        "Move what is imported to a lower package, or pass it in as a parameter; `MAY_IMPORT` and `ONLY_IN` have the "
        f"direction: {wrong}"
    )


def test_only_the_runtimes_clock_asks_for_time_and_chance() -> None:
    asking = {
        path.name for path in FILES if package_of(path) == "runtime" and {"time", "secrets"} & set(imports_of(path))
    }
    assert asking == {"clock.py"}, (
        "Take the time and random bytes from the clock that is passed in (`runtime/clock.py`)"
    )


def test_only_one_file_of_the_simulation_draws_numbers() -> None:
    asking = {path.name for path in FILES if package_of(path) == "simulation" and "random" in imports_of(path)}
    assert asking == {"rng.py"}, "Draw from `seeded_random` of `simulation/rng.py`: a run is replayed from its seed"


def attributes_of(path: Path) -> set[str]:
    return {node.attr for node in nodes_of(path) if isinstance(node, ast.Attribute)}


def test_only_the_journal_syncs() -> None:
    syncing = [path for path in FILES if attributes_of(path) & {"fsync", "fdatasync", "F_FULLFSYNC"}]
    assert syncing == [SOURCE / "journal" / "disk.py"], "Sync files by `Disk` of `journal/disk.py`, which tests replace"


def test_only_where_it_may_chance_is_asked_for() -> None:
    asking = [path for path in FILES if attributes_of(path) & {"urandom", "getrandom"}]
    wrong = [path for path in asking if package_of(path) not in ONLY_IN["random"]]
    assert not wrong, f"Take random bytes as a parameter: the engine is replayed to the last effect: {wrong}"


def test_every_package_is_known() -> None:
    unknown = {package_of(path) for path in FILES} - MAY_IMPORT.keys()
    assert not unknown, f"Say in `MAY_IMPORT` what a new package may import: {unknown}"


MODULES_IN_FOLDER = 20
LINES_OF_FUNCTION = 70
# Longer functions, with their lines. A number may become smaller, and a line may go.
_LONG_FUNCTIONS = {
    # A kernel: with the distances and the conjunctions in functions, even inlined ones, it takes 3.5 % longer.
    "tidings.matching.index.kernels.programs.run_programs": 84,
}
_LARGEST_CYCLE = 5
# Packages whose modules import each other for their types, and their largest cycle. A number may become smaller.
# Functions that take an object with more than `LARGE` public members. The goal is 0; a lower number is written here as
# soon as it is reached.
_LARGE_PARAMETERS = 131
# Protocols with more than `PORT` members. A number may become smaller, and a line may go.
_LARGE_PROTOCOLS = {
    "tidings.client.api.ClientApi": 12,  # the public protocol of all clients
    "tidings.runtime.inboxes.Inbox": 15,
}
_PARTICIPLE = re.compile(r"(ing|ed)$")
# What the field or the papers call so.
_PARTICIPLES_OF_THE_FIELD = frozenset(
    {"compiled", "covering", "deferred", "encoding", "forwarding", "key_issuing", "merging", "on_sealed", "rendering"}
)
# The last words of class names that are nouns of the field.
_NOUNS_OF_THE_FIELD = frozenset(
    {"binding", "finding", "forwarding", "keyring", "listing", "matching", "numbering", "ping", "routing", "warning"}
)
# Classes that say what has happened, a subject and what became of it: effects, operations and changes that are stored.
_HAPPENINGS = frozenset(
    {
        *("BacklogStored", "ClientMoved", "ContextChanged", "DecisionPending", "EnrolmentRemoved", "EpochAdded"),
        *("GrantRemoved", "MetaEventPublished", "PublicationSettled", "RequestRefused", "SubscriptionExpelled"),
        *("TopologyChanging", "TopologySettled", "TrustAnswerNeeded"),
    }
)
_METAPHORS = frozenset({"book", "court", "desk", "door", "gatehouse", "house", "room", "shelf", "told", "held", "kept"})
_NO_NOUNS = _METAPHORS | {"found", "given", "helper", "helpers", "known", "manager", "said", "util", "utils", "whose"}


def test_no_folder_is_crowded() -> None:
    crowded = {folder: count for folder, count in modules_in_folder().items() if count > MODULES_IN_FOLDER}
    assert not crowded, (
        "Split the folder by what its modules are about, or merge those that hold one small thing into the module that "
        f"uses it: {crowded}"
    )


def test_a_public_class_name_means_one_thing() -> None:
    double = {name: homes for name, homes in class_names().items() if len(homes) > 1}
    assert not double, (
        "Name each class so that the name alone says which one it is, `SimulatedClock` and not a second `Clock`: "
        f"{double}"
    )


def test_functions_fit_on_a_screen() -> None:
    """Docstrings do not count."""
    long = {name: lines for lines, name in function_lengths() if lines > LINES_OF_FUNCTION}
    longer = {name: lines for name, lines in long.items() if lines > _LONG_FUNCTIONS.get(name, 0)}
    assert not longer, f"Move a part that has a name of its own into a function: {longer}"
    shorter = _LONG_FUNCTIONS.keys() - long.keys()
    assert not shorter, f"Drop from `_LONG_FUNCTIONS` what fits on a screen now: {shorter}"


def test_functions_take_no_more_than_they_need() -> None:
    """Values that cannot be changed may have more: frozen structs and dataclasses, named tuples, enumerations."""
    taken = functions_with_large_parameters()
    assert len(taken) <= _LARGE_PARAMETERS, (
        f"{len(taken)} functions take an object with more than {LARGE} public members, {_LARGE_PARAMETERS} did. Give "
        f"the new one the parts that it needs, or a protocol of at most {PORT} members; "
        "`python -m tests.structure --large` lists them"
    )


def test_protocols_are_small() -> None:
    large = large_protocols()
    larger = {name: members for name, members in large.items() if members > _LARGE_PROTOCOLS.get(name, 0)}
    assert not larger, (
        f"A protocol says what one user needs, in at most {PORT} members: write one for each user, next to it: {larger}"
    )
    smaller = _LARGE_PROTOCOLS.keys() - large.keys()
    assert not smaller, f"Drop from `_LARGE_PROTOCOLS` what is small now: {smaller}"


def test_import_cycles_do_not_grow() -> None:
    """Imports for types count."""
    large = [cycle for cycle in import_cycles() if len(cycle) > _LARGEST_CYCLE]
    assert not large, f"Let the lower module define a protocol for what it needs of the higher one: {large}"


def test_modules_are_named_by_nouns() -> None:
    named = {path.stem for path in FILES}
    participles = {name for name in named if _PARTICIPLE.search(name)} - _PARTICIPLES_OF_THE_FIELD
    assert not participles, (
        "Give a module the name of what it defines; `told.py` says nothing to somebody who looks for what is in it. "
        f"A word of the field goes into `_PARTICIPLES_OF_THE_FIELD`: {participles}"
    )
    banned = {name for name in named if _NO_NOUNS & set(name.split("_"))}
    assert not banned, f"Use the word of the field in place of a metaphor or a pronoun: {banned}"


def test_classes_are_named_by_nouns() -> None:
    words = {name: words_of(name) for name in class_names()}
    participles = {
        name
        for name, (*_, last) in words.items()
        if _PARTICIPLE.search(last) and last not in _NOUNS_OF_THE_FIELD and name not in _HAPPENINGS
    }
    assert not participles, (
        "End a class name with the noun that it is: a `TemplateRefusal`, not a `TemplateRefused`. A noun of the field "
        f"goes into `_NOUNS_OF_THE_FIELD`, an effect or a change into `_HAPPENINGS`: {participles}"
    )
    banned = {name for name in words if _NO_NOUNS & set(words[name])}
    assert not banned, f"Use the word of the field in place of a metaphor or a pronoun: {banned}"


def test_the_map_has_every_package_and_names_files_that_exist() -> None:
    text = (SOURCE.parents[1] / "docs" / "explanation" / "architecture.md").read_text()
    packages = {module_of(path).split(".")[1] for path in FILES if path.parent != SOURCE}
    missing = {package for package in packages if f"`{package}/`" not in text}
    assert not missing, f"Say in docs/explanation/architecture.md what these packages contain: {missing}"
    glossary = (SOURCE.parents[1] / "docs" / "glossary.md").read_text()
    for file in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", text + glossary):
        exists = (SOURCE / file).exists() or (SOURCE.parents[1] / file).exists()
        assert exists, (
            f"docs/explanation/architecture.md or docs/glossary.md names {file}: name where its contents went"
        )


def test_every_module_is_on_the_map() -> None:
    assert MODULE_PAGE.read_text() == module_page(), (
        "Run `python -m tests.structure --write` after a module has come, gone or changed its first line"
    )


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
