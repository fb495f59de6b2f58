"""What a broker has of its own, by its configuration: schemas, and subscriptions and advertisements with policies."""

from tidings.engine.operations import Advertise, Define, Subscribe, Unadvertise, Unsubscribe
from tidings.live.configuration import Configuration
from tidings.live.desk import Desk
from tidings.model.advertisement import Advertisement
from tidings.model.errors import TidingsError
from tidings.model.subscription import Subscription
from tidings.texts import content_filter, context_filter


def put_own(desk: Desk, given: Configuration, former: Configuration | None = None) -> None:
    """Puts it there; in a broker that has what a `former` configuration said, what is different since."""
    for table in given.schemas:
        schema = table.schema()
        if desk.engine.subjects.find(schema.subject) != schema:
            desk.operate(Define(desk.name, schema), safe=False)
    _put_subscriptions(desk, given, former)
    _put_advertisements(desk, given, former)


def _put_subscriptions(desk: Desk, given: Configuration, former: Configuration | None) -> None:
    before = () if former is None else former.subscriptions
    for number, one in enumerate(given.subscriptions):
        if before[number : number + 1] == (one,):
            continue
        wanted = Subscription.of(
            content_filter(one.content, one.format),
            id=f"{desk.name}.subscription.{number}",
            subscriber=desk.name,
            publishers=context_filter(one.publishers),
            policy=one.policy,
        )
        _operate(desk, Subscribe(wanted))
    for number in range(len(given.subscriptions), len(before)):
        _operate(desk, Unsubscribe(desk.name, f"{desk.name}.subscription.{number}"))


def _put_advertisements(desk: Desk, given: Configuration, former: Configuration | None) -> None:
    before = () if former is None else former.advertisements
    for number, one in enumerate(given.advertisements):
        if before[number : number + 1] == (one,):
            continue
        offered = Advertisement.of(
            content_filter(one.content, one.format),
            id=f"{desk.name}.advertisement.{number}",
            publisher=desk.name,
            publisher_context=one.publisher_context,
            subscriber_context=one.subscriber_context,
            policy=one.policy,
        )
        _operate(desk, Advertise(offered))
    for number in range(len(given.advertisements), len(before)):
        _operate(desk, Unadvertise(desk.name, f"{desk.name}.advertisement.{number}"))


def _operate(desk: Desk, operation: Subscribe | Advertise | Unsubscribe | Unadvertise) -> None:
    refused = desk.operate(operation, safe=False).refused
    if refused is not None:
        raise TidingsError(f"what the broker itself has is refused: {refused.reason}")
