"""Which tests stay together where several processes share them (`pytest --numprocesses 2`, as `make test` does).

Files with a test that runs on the Spark session of its process are two units: those of the package, and commands and
pages. A page is a unit, because its examples build on each other, and so is a file whose tests share what was set up
once, such as brokers that run: else every process would set it up. Tests that start a Java of their own, because they
kill it, are a unit, so that no more than three run at a time. Every other test may run anywhere. The process that
gives work out has not collected the tests and knows their names alone, so the files themselves are asked. (The marks
`xdist_group` would be lost on the way: pytest-xdist 3.8 writes them into a field that pytest 9.2 no longer reads.)
"""

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).resolve().parents[1]


def unit_of(nodeid: str) -> str:
    """The name of what this test must stay together with."""
    file = nodeid.partition("::")[0]
    if starts_spark(file):
        if starts_its_own(file):
            return "java"
        return "spark" if file.startswith("tests/spark/") else "commands on spark"
    return file if file.endswith(".md") or shares_a_fixture(file) else nodeid


@cache
def shares_a_fixture(file: str) -> bool:
    return 'scope="module"' in (ROOT / file).read_text()


@cache
def starts_its_own(file: str) -> bool:
    """Whether the tests of a file start Java themselves, and take no part in the session."""
    return file.endswith(".py") and "pytest.mark.java" in (ROOT / file).read_text()


@cache
def starts_spark(file: str) -> bool:
    text = (ROOT / file).read_text()
    if file.endswith(".md"):
        blocks = text.split("```")[1::2]
        return any("spark" in block.lower() for block in blocks)
    return "pytest.mark.spark" in text


class Sharing(LoadScopeScheduling):
    """Gives out whole units, those of most tests first."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Forgets a unit that is done. The scheduler counts the tests of all units that a process was given after every
        test, which takes longer with each."""
        super().mark_test_complete(node, item_index, duration)
        unit, given = unit_of(self.registered_collections[node][item_index]), self.assigned_work[node]
        if all(given[unit].values()):
            del given[unit]
