"""Asking a key management centre or a discovery node over the overlay: the one function that all who ask use."""

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tidings.client.security import now
from tidings.model.errors import RefusedError, SecurityError, UnreachableError
from tidings.security import exchange
from tidings.security.exchange import SERVICE_TOPIC, Pending, Service
from tidings.security.identity import Identity

if TYPE_CHECKING:
    from tidings.client.client import Client

TIMEOUT = 10.0  # seconds
# What is asked too late, or too early, gets no answer at all: it may be a replay.
CLOCKS = f"whether this machine's clock is right to within {exchange.FRESHNESS // 1_000_000} s"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 4.0  # seconds until the question is asked anew


async def ask(
    client: "Client", identity: Identity, service: Service, kind: str, body: bytes = b"", *, timeout: float = TIMEOUT
) -> bytes:
    """What the service answers; a `RefusedError` with its reason, if it does not do what it is asked.

    Without an answer a new question is asked, since no question is answered twice: so the service may do the same
    twice. Whether it has done it, is not known after an `UnreachableError`.
    """
    try:
        async with asyncio.timeout(timeout):
            await client.mailbox.open()
            found = await _answered(client, identity, service, kind, body)
    except TimeoutError:
        raise UnreachableError(
            f"{service.certificate.name} ({service.certificate.role.value}) has not answered within {timeout:g} s:"
            f" see whether it is running, and has not moved to another topic, and {CLOCKS}"
        ) from None
    if isinstance(found, RefusedError):
        raise found
    return found


async def _answered(
    client: "Client", identity: Identity, service: Service, kind: str, body: bytes
) -> bytes | RefusedError:
    answered: asyncio.Future[bytes | RefusedError] = asyncio.get_running_loop().create_future()
    asked: dict[str, Pending] = {}

    def taker(topic: str, payload: bytes) -> None:
        if topic not in asked or answered.done():
            return
        try:
            answered.set_result(exchange.read_answer(asked[topic], payload))
        except RefusedError as refused:
            answered.set_result(refused)
        except SecurityError:  # brokers see the reply topic: what somebody else sends to it must not end the question
            return

    pause = _FIRST_PAUSE
    with ExitStack() as expected:  # an answer to an earlier question may come late, and is as good
        while True:
            topic = expected.enter_context(client.mailbox.expecting(taker))
            asked[topic] = exchange.ask(identity, service, kind, body, now(), topic)
            await client.publish({SERVICE_TOPIC: service.topic}, payload=asked[topic].payload, safe="accepted")
            done, _ = await asyncio.wait([answered], timeout=pause)
            if done:
                return answered.result()
            pause = min(2 * pause, _LONGEST_PAUSE)
