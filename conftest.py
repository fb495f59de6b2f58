"""Collects README.md and the pages below docs/: what they show is run. How is said in `tests/docs/blocks.py`."""

import signal
from typing import Any

import pytest
from sybil import Sybil
from tests.docs.blocks import parse_blocks
from tests.docs.brokers import stop_brokers
from tests.docs.shell import end_shell
from tests.docs.tables import parse_tables
from tests.sharing import Sharing


def _end(namespace: dict[str, Any]) -> None:
    end_shell(namespace)
    stop_brokers(namespace)


pytest_collect_file = Sybil(
    parsers=[parse_blocks, parse_tables],
    patterns=["README.md", "docs/*.md", "docs/*/*.md"],
    excludes=["docs/_build/*", "docs/_build/*/*"],
    teardown=_end,
).pytest()


def pytest_configure() -> None:
    """Restores SIGINT where a shell has started the suite in the background: a process that a test starts inherits
    an ignored signal, and could not be stopped by it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    return Sharing(config, log)
