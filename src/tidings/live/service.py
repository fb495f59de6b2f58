"""A service: what a connected client asks of its broker is done, and answered in the order of things."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from tidings.engine import operations
from tidings.engine.effects import Reject
from tidings.hub.roster import LIMIT, NOTHING
from tidings.hub.subscription import HubSubscription
from tidings.hub.texts import inbox_limit
from tidings.live import ration
from tidings.live.inbox import Kept, Served
from tidings.live.pump import InboxPump
from tidings.model.advertisement import Advertisement, checked_id
from tidings.model.errors import InvalidValueError, RefusedError, TidingsError
from tidings.model.event import checked_client
from tidings.model.notification import Notification
from tidings.model.schematext import schema_of, structure_of
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.protocol import answers, requests
from tidings.protocol.frames import Kind
from tidings.protocol.handshake import Hello
from tidings.texts import content_filter, context_filter, context_offer, policy_text

if TYPE_CHECKING:
    from tidings.live.broker import Broker
    from tidings.live.session import Session

_LOG = logging.getLogger("tidings.live")


class Service:
    """Of one session."""

    def __init__(self, session: "Session", broker: "Broker", hello: Hello, nonce: bytes) -> None:
        self._session, self._name = session, hello.name
        self._broker, self._desk = broker, broker.desk
        self._hello, self._nonce = hello, nonce
        self._moved = False
        self.has_set_context = False  # over this connection, be it an empty one
        self._pumps: dict[str, InboxPump] = {}

    def serve(self, message: msgspec.Struct) -> None:
        """Raises what the client is to be told, or an `AwaitedError` if it cannot be done yet."""
        if self._hello.observer and not isinstance(message, requests.Ask):
            raise observer_refusal(self._name)
        _HANDLERS[type(message)](self, message)

    def end(self) -> None:
        """The client is gone; what waits for it waits on in its inboxes."""
        self._pumps.clear()

    def _subscribe(self, wanted: requests.Subscribe) -> None:
        roster = self._desk.roster
        durable = None if wanted.durable is None else checked_id(wanted.durable)
        known = None if durable is None else roster.durable(self._name, durable)
        id = wanted.id if known is None else known.id  # noqa: A001
        policy = policy_text(wanted.policy)
        held = roster.subscriptions.get(id)
        if policy is None and held is not None and held.subscriber == self._name:
            policy = held.subscription.policy  # coming back without one leaves the one that was set
        if held is None:
            ration.check_subscription(self._desk, self._session.limits, self._name)
        subscription = Subscription.of(
            content_filter(wanted.content),
            id=id,
            subscriber=self._name,
            subject=wanted.subject,
            structure=None if wanted.structure is None else structure_of(wanted.structure),
            publishers=context_filter(wanted.publishers),
            policy=policy,
            durable=durable,
            notify=wanted.notify,
            token=wanted.token,
        )
        if self._broker.gatehouse is not None:
            self._broker.gatehouse.check_proof(wanted, self._nonce)
        if durable is not None:
            self._reside()
        limit = inbox_limit(wanted.limit)
        outcome = self._desk.operate(
            operations.Subscribe(subscription),
            lambda result: self._reply(wanted.request, result, id),
            {LIMIT: limit},
            safe=durable is not None,
        )
        if outcome.refused is None:
            self._attach(id)
            self._desk.judge(self._name)

    def _reside(self) -> None:
        """A program that has just started cannot know whether its durable subscriptions are at another broker."""
        if self._hello.last_broker or self._moved or not self._desk.engine.neighbours:
            return
        self._moved = True
        self._desk.operate(operations.Connect(self._name, moved=True, session=self._hello.session), safe=False)

    def _attach(self, id: str) -> None:  # noqa: A002
        held = self._desk.roster.subscriptions[id]
        inbox = held.inbox
        if isinstance(held, Served):
            held.inbox = self._session.inbox
        elif isinstance(inbox, Kept):
            held.attach(None)
            pump = InboxPump(
                *(inbox, self._session.connection, partial(self._handed_out, held)),
                *(self._broker.notes.frame, self._broker.readers, self._complain),
            )
            inbox.pump = self._pumps[id] = pump
            self._desk.outgoing.add(0, pump.wake)

    def _handed_out(
        self, held: HubSubscription, notes: list[Notification]
    ) -> tuple[list[Notification], list[Notification]]:
        """Of what waited, what may be handed out now, and what later."""
        gatehouse = self._broker.gatehouse
        return (notes, []) if gatehouse is None else gatehouse.handed_out(held, notes)

    def wake_pumps(self) -> None:
        """What had to wait may go out now."""
        for pump in self._pumps.values():
            pump.wake()

    def _unsubscribe(self, wanted: requests.Unsubscribe) -> None:
        id = checked_id(wanted.id)  # noqa: A001
        held = self._desk.roster.subscriptions.get(id)
        is_durable = held is not None and held.durable is not None
        operation = operations.Unsubscribe(self._name, id, policy_text(wanted.policy))
        outcome = self._desk.operate(operation, lambda result: self._reply(wanted.request, result, id), safe=is_durable)
        if outcome.refused is None:
            self._pumps.pop(id, None)
            self._session.forget_lost(id)

    def _advertise(self, wanted: requests.AdvertiseAll) -> None:
        advertisement = Advertisement.of(
            content_filter(wanted.content),
            id=wanted.id,
            publisher=self._name,
            publisher_context=None if wanted.publisher_context_all else context_offer(wanted.publisher_context),
            subscriber_context=context_offer(wanted.subscriber_context),
            policy=policy_text(wanted.policy),
        )
        ration.check_advertisement(self._desk, self._session.limits, self._name, wanted.id)
        self._operate(wanted, operations.Advertise(advertisement), wanted.id)

    def _unadvertise(self, wanted: requests.Unadvertise) -> None:
        self._operate(
            wanted, operations.Unadvertise(self._name, checked_id(wanted.id), policy_text(wanted.policy)), wanted.id
        )

    def _set_context(self, wanted: requests.SetContext) -> None:
        whose = self._name if wanted.of is None else checked_client(wanted.of)
        context, present = Context(wanted.context), self._desk.roster.contexts.get(whose, NOTHING)
        self.has_set_context |= whose == self._name
        if whose == self._name and context == present:
            self._desk.outgoing.add(0, self._reply, wanted.request, [], "")
            return
        by = None if whose == self._name else self._name
        outcome = self._operate(wanted, operations.SetContext(whose, context, by))
        other = self._broker.sessions.get(whose)
        if outcome.refused is None and by is not None and other is not None:
            other.connection.say(Kind.CONTEXT, answers.Context(dict(context)))

    def _entrust(self, wanted: requests.Entrust) -> None:
        other = checked_client(wanted.other)
        if wanted.allowed:
            ration.check_entrusted(self._desk, self._session.limits, self._name, other)
        self._operate(wanted, operations.Entrust(self._name, other, wanted.allowed))

    def _set_policy(self, wanted: requests.SetPolicy) -> None:
        """An operator's policy is the broker's own, beside the owner's."""
        id = checked_id(wanted.id)  # noqa: A001
        engine = self._desk.engine
        filed = engine.subscriptions.get(id) or engine.advertisements.get(id)
        whose = self._name
        if self._session.is_operator and filed is not None and filed.owner != self._name:
            whose = self._desk.name
        self._operate(wanted, operations.SetPolicy(whose, id, policy_text(wanted.policy)), safe=True)

    def _define(self, wanted: requests.Define) -> None:
        schema = schema_of(wanted.subject, list(wanted.versions))
        ration.check_subject(self._desk, self._session.limits, schema.subject)
        outcome = self._operate(wanted, operations.Define(self._name, schema), safe=True)
        if outcome.refused is None:
            self._broker.subject_defined(schema.subject)

    def _acknowledge(self, done: requests.Acknowledge) -> None:
        held = self._desk.roster.subscriptions.get(done.subscription)
        if held is None or held.subscriber != self._name:
            return  # it has ended meanwhile
        if not isinstance(held.inbox, Kept):
            raise InvalidValueError(f"{done.subscription} is not durable: there is nothing to acknowledge")
        self._desk.acknowledge(held, [_event_id(one) for one in done.events])
        if (pump := self._pumps.get(held.id)) is not None:
            pump.wake()

    def _operate(self, wanted: Any, operation: operations.Operation, id: str = "", *, safe: bool = False) -> Any:  # noqa: A002
        return self._desk.operate(operation, lambda result: self._reply(wanted.request, result, id), safe=safe)

    def _ask(self, asked: requests.Ask) -> None:
        self._session.ask(asked)

    def _reply(self, request: int, result: list[str] | Reject, id: str) -> None:  # noqa: A002
        connection = self._session.connection
        if isinstance(result, Reject):
            connection.say(Kind.REFUSED, answers.Refused(request, "RefusedError", result.reason, result.step))
        else:
            connection.say(Kind.DONE, answers.Done(request, tuple(result), id))

    def _complain(self, error: TidingsError) -> None:
        _LOG.error("what waits for %s cannot be read: %s", self._name, error)
        self._session.connection.close(f"what waits for you cannot be read: {error}")


_HANDLERS: dict[Any, Callable[[Service, Any], None]] = {
    requests.Subscribe: Service._subscribe,
    requests.Unsubscribe: Service._unsubscribe,
    requests.AdvertiseAll: Service._advertise,
    requests.Unadvertise: Service._unadvertise,
    requests.SetContext: Service._set_context,
    requests.Entrust: Service._entrust,
    requests.SetPolicy: Service._set_policy,
    requests.Define: Service._define,
    requests.Acknowledge: Service._acknowledge,
    requests.Ask: Service._ask,
}


def observer_refusal(name: str) -> RefusedError:
    """The answer to an operation of an observer."""
    return RefusedError("admit", f"{name} is connected as an observer, and may only ask questions")


def _event_id(data: bytes) -> UUID:
    if len(data) != 16:
        raise InvalidValueError("an event is named by the 16 bytes of its id")
    return UUID(bytes=data)
