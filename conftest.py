"""Collects README.md and the pages below docs/, whose examples are run (`tests/docs/blocks.py` says how), and applies
the options of the suite: the part of `make test-all`, and what a quick run may not do."""

import gc
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis.internal.conjecture.engine import ConjectureRunner
from sybil import Sybil
from tests.docs.blocks import parse_blocks
from tests.docs.brokers import stop_brokers
from tests.docs.shell import end_shell
from tests.docs.tables import parse_tables
from tests.limits import CUT, MAX_PROPERTY_SECONDS
from tests.parts import PARTS, part_of
from tests.sharing import Sharing
from tests.sizes import SIZE

_TESTS_BETWEEN_FREEZES = 200
_ended = 0
_PROCESS_EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})


def _end(namespace: dict[str, Any]) -> None:
    end_shell(namespace)
    stop_brokers(namespace)


pytest_collect_file = Sybil(
    parsers=[parse_blocks, parse_tables],
    patterns=["README.md", "docs/*.md", "docs/*/*.md"],
    excludes=["docs/_build/*", "docs/_build/*/*"],
    teardown=_end,
).pytest()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=[*PARTS], help="only the tests of this part of `make test-all`")


def pytest_configure(config: pytest.Config) -> None:
    """Restores SIGINT where a shell has started the suite in the background: a process that a test starts inherits
    an ignored signal, and could not be stopped by it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Ends a property of `make test-all` that has drawn examples for `MAX_PROPERTY_SECONDS` without finding a fault."""
    if item.config.getoption("--part") is None:
        return (yield)
    may_draw, ends = ConjectureRunner.should_generate_more, dict[ConjectureRunner, float]()

    def may_draw_in_time(runner: ConjectureRunner) -> bool:
        end = ends.setdefault(runner, time.monotonic() + MAX_PROPERTY_SECONDS)
        if not may_draw(runner):
            return False
        if runner.interesting_test_cases or time.monotonic() < end:
            return True
        drawn = f"{runner.valid_test_cases:,} of {runner.settings.max_examples:,}"
        item.user_properties[:] = [*(one for one in item.user_properties if one[0] != CUT), (CUT, drawn)]
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConjectureRunner, "should_generate_more", may_draw_in_time)
        return (yield)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("--part")
    if part is not None:
        others = [item for item in items if part_of(item.nodeid.partition("::")[0]) != part]
        items[:] = [item for item in items if item not in set(others)]
        config.hook.pytest_deselected(items=others)


def pytest_collection_finish() -> None:
    _freeze()
    if SIZE == "quick":
        sys.addaudithook(_refuse_processes)


def pytest_runtest_logfinish() -> None:
    global _ended
    _ended += 1
    if _ended % _TESTS_BETWEEN_FREEZES == 0:
        _freeze()


def pytest_unconfigure() -> None:
    """Gives everything back to the garbage collector: extension modules complain of objects that outlive them."""
    gc.unfreeze()


def _freeze() -> None:
    """Takes what there is out of the garbage collector's way: the tests that were collected, later the modules and the
    caches that they have filled. Else each pass of the collector looks through all of it, which takes longer than most
    tests."""
    gc.collect()
    gc.freeze()


def _refuse_processes(event: str, _: object) -> None:
    """A quick run starts no process, so that nobody waits for one; a test that does is marked."""
    if event in _PROCESS_EVENTS:
        raise RuntimeError("a quick test starts no process: mark it with pytest.mark.process")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    return Sharing(config, log)
