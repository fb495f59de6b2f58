"""The command `tidings subscribe`: write notifications as JSON lines."""

from typing import Any, NamedTuple

from tidings.cli.connection import BrokerConnection, request_timeout
from tidings.cli.notification_output import LossCounter, follow, json_line, until_interrupted
from tidings.cli.output import err, print_json
from tidings.client.sync import SyncSubscription


class SubscribeOptions(NamedTuple):
    """The subscription that the command makes. `context` is the subscriber's own; the clients in `entrusted` may set
    it."""

    content: str
    publishers: str | None
    policy: Any
    durable: str | None
    format: str
    context: dict[str, Any]
    entrusted: list[str]


def subscribe(
    caller: BrokerConnection,
    options: SubscribeOptions,
    *,
    count: int | None,
    seconds: float | None,
    as_json: bool = False,
) -> None:
    """Subscribe, and write notifications as JSON lines until a limit is reached or Ctrl-C.

    Lost notifications are written as `{"lost": N}`; events that could not be opened are reported on standard error.

    Args:
        caller: The connection to the broker.
        options: What to subscribe to.
        count: How many notifications to write; None: no limit.
        seconds: How long to run; None: no limit.
        as_json: Report connection changes as JSON.
    """
    losses, refusals = LossCounter(), LossCounter()
    with until_interrupted(), caller.connect(request_timeout(seconds), as_json=as_json) as client:
        if options.context:
            client.set_context(options.context)
        for client_name in options.entrusted:
            client.let_set_context(client_name)
        with client.subscribe(
            options.content,
            publishers=options.publishers,
            policy=options.policy,
            durable=options.durable,
            format=options.format,
            on_lost=losses.add,
            on_refused=lambda *_: refusals.add(1),
        ) as subscription:
            _print_findings(subscription)
            follow(
                subscription,
                lambda notification: print_json(json_line(notification)),
                count=count,
                seconds=seconds,
                before_batch=lambda: _print_lost(losses, refusals),
                is_durable=options.durable is not None,
            )


def _print_findings(subscription: SyncSubscription) -> None:
    for finding in subscription.findings:
        err.print(finding, markup=False, soft_wrap=True)
    err.print(f"tidings: {subscription.id} waits for events", markup=False, soft_wrap=True)


def _print_lost(losses: LossCounter, refusals: LossCounter) -> None:
    if count := losses.take():
        print_json({"lost": count})
    if count := refusals.take():
        err.print(f"tidings: {count:,} events are sealed and could not be opened", markup=False)
