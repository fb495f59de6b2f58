"""`tidings advertise`: says what a client will publish, for as long as it is connected."""

import contextlib
from typing import Any, NamedTuple

from tidings.cli.caller import Caller, answer_seconds
from tidings.cli.stream import until_interrupted
from tidings.cli.terminal import err, out, print_json
from tidings.model.errors import RequestTimeoutError


class Offer(NamedTuple):
    content: str
    publisher_context: list[str] | None
    subscriber_context: list[str]
    policy: Any
    format: str


def advertise(caller: Caller, offer: Offer, *, seconds: float | None, as_json: bool) -> None:
    """An advertisement ends with its client's connection: this one stays until Ctrl-C, or for so many seconds."""
    with until_interrupted(), caller.opened(answer_seconds(seconds), as_json=as_json) as client:
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
        with contextlib.suppress(RequestTimeoutError):  # that is when it ends
            client.until_closed(seconds)
