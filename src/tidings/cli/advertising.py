"""`tidings advertise`: says what a client will publish, for as long as it is connected."""

import time
from typing import Any, NamedTuple

from tidings.cli.caller import Caller
from tidings.cli.stream import until_interrupted
from tidings.cli.terminal import err, out, print_json


class Offer(NamedTuple):
    content: str
    publisher_context: list[str] | None
    subscriber_context: list[str]
    policy: Any
    format: str


def advertise(caller: Caller, offer: Offer, *, seconds: float | None, as_json: bool) -> None:
    """An advertisement ends with its client's connection: this one stays until Ctrl-C, or for so many seconds."""
    with until_interrupted(), caller.opened() as client:
        made = client.advertise(
            offer.content,
            publisher_context=offer.publisher_context,
            subscriber_context=offer.subscriber_context,
            policy=offer.policy,
            format=offer.format,
        )
        if as_json:
            content = str(made.advertisement.content)
            print_json({"id": made.id, "publisher": client.name, "broker": client.broker, "content": content})
        else:
            told = f"{client.name} at {client.broker} advertises {made.advertisement.content or 'everything'}"
            out.print(f"{told} ({made.id})", markup=False, soft_wrap=True)
        for finding in made.findings:
            err.print(finding, markup=False, soft_wrap=True)
        _wait(seconds)


def _wait(seconds: float | None) -> None:
    until = float("inf") if seconds is None else time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 60.0))
