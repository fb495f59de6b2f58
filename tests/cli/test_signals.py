"""A service on the command line ends by a signal, whatever it waits for."""

import asyncio
import os
import signal

import pytest

from tidings.cli.connection import until_stopped
from tidings.model.errors import ClosedError

SECONDS = 60


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_service_that_waits_for_its_broker_while_it_starts(number: signal.Signals) -> None:
    ended: list[bool] = []

    async def service() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    asyncio.run(asyncio.wait_for(until_stopped(service()), SECONDS))
    assert ended == [True]


def test_what_ends_a_service_is_raised() -> None:
    async def service() -> None:
        raise ClosedError("another program has connected under the same name")

    with pytest.raises(ClosedError, match="another program"):
        asyncio.run(asyncio.wait_for(until_stopped(service()), SECONDS))
