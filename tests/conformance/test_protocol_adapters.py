"""Every package below `tidings/adapters` has what docs/contributing/specifications.md asks of a protocol adapter.

There is no adapter yet. So that the check is known to work on the first one, it is tried on made-up packages, too.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = ("adapter", "configuration", "mapping")
TESTS = ("test_mapping", "test_hostile", "test_adapter")
MAY_IMPORT = {"adapters", "client", "configuration", "model"}
PURE = {"adapters", "model"}  # what a mapping may import


def faults(root: Path) -> list[str]:
    """Return what the adapters of a repository lack, as sentences."""
    folder = root / "src" / "tidings" / "adapters"
    packages = sorted(path for path in folder.glob("*") if path.is_dir() and path.name != "__pycache__")
    modules = sorted(path for path in folder.glob("*.py") if path.stem != "__init__")
    loose = [f"{path.name}: an adapter is a package" for path in modules]
    return [*loose, *(fault for package in packages for fault in faults_of(root, package))]


def faults_of(root: Path, package: Path) -> Iterator[str]:
    name = package.name
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    if name not in extras:
        yield f"{name}: pyproject.toml has no extra of this name"
    for page in (f"docs/how-to/{name}.md", *(f"tests/adapters/{name}/{test}.py" for test in TESTS)):
        if not (root / page).exists():
            yield f"{name}: there is no {page}"
    for module in (*MODULES, "__init__"):
        path = package / f"{module}.py"
        if not path.exists():
            yield f"{name}: there is no {module}.py"
            continue
        tree = ast.parse(path.read_text())
        if ast.get_docstring(tree) is None:
            yield f"{name}/{module}.py: has no docstring"
        yield from (f"{name}/{module}.py: {fault}" for fault in module_faults(module, tree))


def module_faults(module: str, tree: ast.Module) -> Iterator[str]:
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    imported = {name.split(".")[1] for name in imports_of(tree) if name.startswith("tidings.")}
    if wrong := sorted(imported - (PURE if module == "mapping" else MAY_IMPORT)):
        yield f"must not import {', '.join(wrong)}"
    if module == "adapter":
        adapters = [node for name, node in classes.items() if name.endswith("Adapter")]
        methods = {node.name for one in adapters for node in one.body if isinstance(node, ast.AsyncFunctionDef)}
        if len(adapters) != 1 or not {"start", "stop"} <= methods:
            yield "defines one class ...Adapter with the coroutines start and stop"
    if module == "configuration" and not any("forbid_unknown_fields" in ast.unparse(node) for node in classes.values()):
        yield "defines a struct that forbids unknown fields"


def imports_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_every_adapter_has_what_the_page_asks_for() -> None:
    assert faults(ROOT) == []


GOOD = {
    "pyproject.toml": "[project.optional-dependencies]\nmqtt = ['aiomqtt']\n",
    "docs/how-to/mqtt.md": "# MQTT\n",
    **{f"tests/adapters/mqtt/{name}.py": "" for name in TESTS},
    "src/tidings/adapters/__init__.py": '"""Adapters."""\n',
    "src/tidings/adapters/mqtt/__init__.py": '"""MQTT 5."""\n',
    "src/tidings/adapters/mqtt/mapping.py": '"""Topics and events."""\nfrom tidings.model.event import Event\n',
    "src/tidings/adapters/mqtt/configuration.py": (
        '"""The table `[mqtt]`."""\nimport msgspec\nclass MqttTable(msgspec.Struct, forbid_unknown_fields=True): ...\n'
    ),
    "src/tidings/adapters/mqtt/adapter.py": (
        '"""Connects an MQTT server to a broker."""\nfrom tidings.client import Client\nclass MqttAdapter:\n'
        "    async def start(self): ...\n    async def stop(self): ...\n"
    ),
}


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_package_with_everything_has_no_faults(tmp_path: Path) -> None:
    assert faults(written(tmp_path, GOOD)) == []


def test_each_thing_that_is_missing_is_named(tmp_path: Path) -> None:
    bare = {
        "pyproject.toml": "[project.optional-dependencies]\n",
        "src/tidings/adapters/can.py": "",
        "src/tidings/adapters/mqtt/mapping.py": "from tidings.engine import Engine\n",
        "src/tidings/adapters/mqtt/adapter.py": '"""MQTT."""\nimport tidings.broker.broker\nclass MqttAdapter: ...\n',
        "src/tidings/adapters/mqtt/configuration.py": '"""Nothing."""\n',
    }
    assert faults(written(tmp_path, bare)) == [
        "can.py: an adapter is a package",
        "mqtt: pyproject.toml has no extra of this name",
        "mqtt: there is no docs/how-to/mqtt.md",
        "mqtt: there is no tests/adapters/mqtt/test_mapping.py",
        "mqtt: there is no tests/adapters/mqtt/test_hostile.py",
        "mqtt: there is no tests/adapters/mqtt/test_adapter.py",
        "mqtt/adapter.py: must not import broker",
        "mqtt/adapter.py: defines one class ...Adapter with the coroutines start and stop",
        "mqtt/configuration.py: defines a struct that forbids unknown fields",
        "mqtt/mapping.py: has no docstring",
        "mqtt/mapping.py: must not import engine",
        "mqtt: there is no __init__.py",
    ]
