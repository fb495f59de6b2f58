"""The address of a broker that runs in this process: what most tests need of `tidings.testing`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tidings.broker.config.table_types import Address
from tidings.testing import broker


@contextmanager
def running_broker(journal: object = "", port: int = 0, **tables: Any) -> Iterator[Address]:
    """Where a broker named b1 listens, until the end of the block; `tables` are those of its configuration."""
    with broker(journal, port, **tables) as started:
        yield started.endpoint
