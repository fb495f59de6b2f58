"""`tidings subscribe`: notifications as lines of JSON."""

from typing import Any, NamedTuple

from tidings.cli.caller import Caller, answer_seconds
from tidings.cli.stream import Losses, follow, json_line, until_interrupted
from tidings.cli.terminal import err, print_json
from tidings.client.synchronous import SyncSubscription


class Wanted(NamedTuple):
    """What is subscribed to, and by whom: `context` is the subscriber's, `entrusted` may set it."""

    content: str
    publishers: str | None
    policy: Any
    durable: str | None
    format: str
    context: dict[str, Any]
    entrusted: list[str]


def subscribe(
    caller: Caller, wanted: Wanted, *, count: int | None, seconds: float | None, as_json: bool = False
) -> None:
    losses, refusals = Losses(), Losses()
    with until_interrupted(), caller.opened(answer_seconds(seconds), as_json=as_json) as client:
        if wanted.context:
            client.set_context(wanted.context)
        for other in wanted.entrusted:
            client.let_set_context(other)
        with client.subscribe(
            wanted.content,
            publishers=wanted.publishers,
            policy=wanted.policy,
            durable=wanted.durable,
            format=wanted.format,
            on_lost=losses.add,
            on_refused=lambda *_: refusals.add(1),
        ) as subscription:
            _remark(subscription)
            follow(
                subscription,
                lambda note: print_json(json_line(note)),
                count=count,
                seconds=seconds,
                between=lambda: _tell_lost(losses, refusals),
                is_durable=wanted.durable is not None,
            )


def _remark(subscription: SyncSubscription) -> None:
    for finding in subscription.findings:
        err.print(finding, markup=False, soft_wrap=True)
    err.print(f"tidings: {subscription.id} waits for events", markup=False, soft_wrap=True)


def _tell_lost(losses: Losses, refusals: Losses) -> None:
    if count := losses.taken():
        print_json({"lost": count})
    if count := refusals.taken():
        err.print(f"tidings: {count:,} events are sealed and could not be opened", markup=False)
