"""The values that conditions read and actions write while a rule is applied to a copy of a message.

`RuleContext` is one copy of a message on its way to one receiver. Conditions read it; actions record in its
`RuleOutcome` what is to be done. `MessageFacts` has what all copies of a message share. User-defined conditions and
actions get an `ElementContext`, which has the methods that the reference of the policy language lists.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from tidings.model.errors import InvalidValueError
from tidings.model.expression import Constant
from tidings.model.filter import FilterValue
from tidings.model.limits import MAX_NAME_CHARACTERS
from tidings.model.notification import Trace
from tidings.model.values import BARE_NAME, Attributes, Value, checked_name, checked_value
from tidings.policy.ast import Argument, MessageType, PublishTemplate, Values, Variable

Conversion = Callable[["OutgoingPublication"], bytes]


class TrustAnswerNeeded(Exception):  # noqa: N818 - a question, not an error
    """The trust provider has not answered yet whether `party` belongs to `group`; the rule is applied again later."""

    def __init__(self, party: str, group: str) -> None:
        super().__init__(f"does {party} belong to {group}?")
        self.party, self.group = party, group


class RuleSource:
    """Where a rule comes from: the message itself, an advertisement, a subscription or a broker's own filter.

    `kind` and `id` name that source and `owner` is its client; `filter` is its filter, or None for the message itself.
    """

    __slots__ = ("filter", "governs", "id", "kind", "names", "operators", "owner")

    def __init__(
        self,
        kind: str,
        id: str,  # noqa: A002 - the filter's own word
        owner: str,
        filter: FilterValue | None = None,  # noqa: A002
        names: frozenset[str] = frozenset(),
        governs: bool = False,
        operators: bool = False,
    ) -> None:
        self.kind, self.id, self.owner, self.filter = kind, id, owner, filter
        self.names = names  # the names of the attributes in the filter
        self.governs = governs  # whether its rules may affect other clients' messages
        self.operators = operators  # set by the operator, not by the owner

    @property
    def key(self) -> tuple[str, str, bool]:
        """The identity of the source; the operator's policy on a filter has another key than the owner's."""
        return self.kind, self.id, self.operators

    def __str__(self) -> str:
        if self.kind == "message":
            return "the message itself"
        return f"the {self.kind} {self.id}{', by the operator' if self.operators else ''}"


_NOBODY = RuleSource("message", "", "")
_NOTHING: Mapping[str, Value] = {}


class OutgoingPublication:
    """A publication as it will be sent, after removals and additions: the input of a conversion."""

    __slots__ = ("attributes", "payload", "publisher", "subject", "trace")

    def __init__(
        self,
        attributes: Mapping[str, Value],
        payload: bytes | None = None,
        subject: str | None = None,
        publisher: str = "",
        trace: tuple[Trace, ...] = (),
    ) -> None:
        self.attributes, self.payload, self.trace = attributes, payload, trace
        self.subject, self.publisher = subject, publisher


class RuleOutcome:
    """What one rule wants done with one copy of a message; its actions fill it in."""

    __slots__ = (
        *("added", "allows", "blocks", "branch", "conversions", "failure", "floods", "forwards_to", "keeps", "logs"),
        *("handled_error", "once", "persists", "publishes", "removes", "trace", "trims", "uninserts"),
    )

    def __init__(self, branch: int) -> None:
        self.branch = branch  # the branch that applied, from 1; branches of OnException follow
        self.allows = False  # the branch has no actions: explicitly allows the message
        self.blocks = self.uninserts = self.floods = self.trims = False
        self.removes: set[str] = set()
        self.keeps: frozenset[str] | None = None
        self.added: list[tuple[str, Value]] = []
        self.trace: dict[str, Any] = {}
        self.conversions: list[Conversion] = []
        self.forwards_to: list[str] = []
        self.publishes: list[Attributes] = []
        self.logs: list[str] = []
        self.persists: list[str] = []
        self.once: list[Hashable] = []  # keys of actions that must not run again for this message
        self.handled_error: str | None = None  # the exception that OnException handled
        self.failure: str | None = None  # the exception that OnException did not handle

    @property
    def changes(self) -> bool:
        """Whether the rule removes, adds or converts anything."""
        return bool(self.removes or self.keeps is not None or self.added or self.trace or self.conversions)

    def keep_only(self, names: Iterable[str]) -> None:
        """Remove all attributes but these; of several calls, only names in all of them stay."""
        self.keeps = frozenset(names) if self.keeps is None else self.keeps.intersection(names)

    def persist(self, store: str) -> None:
        """Store the message in a named store of the broker. Raises `InvalidValueError` for a bad name."""
        if not BARE_NAME.fullmatch(store) or len(store) > MAX_NAME_CHARACTERS:
            raise InvalidValueError(f"a store is named by letters, digits, _ and dots, not {store!r:.40}")
        self.persists.append(store)

    def conflict_with(self, other: "RuleOutcome") -> str | None:
        """Return why both outcomes cannot be obeyed, and what is done instead; None if they do not conflict. Ask both
        ways."""
        if self.blocks and (other.allows or other.floods):
            return "one blocks what the other lets through: it is blocked"
        both = sorted(self.removes & (other.keeps or frozenset()))
        if both:
            return f"one removes {', '.join(both)}, which the other keeps: it is removed"
        mine, others = dict(self.added), dict(other.added)
        differing = sorted(name for name in mine.keys() & others.keys() if mine[name] != others[name])
        if differing:
            return f"both add {', '.join(differing)}: the later one counts"
        if self.conversions and other.conversions:
            return "both convert: the first one counts"
        return None


_UNDECIDED = RuleOutcome(0)  # before any action


class MessageFacts:
    """Facts that are the same for all copies of a message: the message, its broker and sender, and trust answers.

    `text` and `measure` compute the text and the size on demand; `trusts` returns None if the answer is not known yet.
    """

    __slots__ = (
        *("answers", "attributes", "broker", "host", "load", "measure", "message_type", "once", "payload"),
        *("publisher", "sender", "subject", "text", "trusts"),
    )

    def __init__(
        self,
        message_type: MessageType,
        broker: str,
        host: str,
        load: float,
        sender: str,
        text: Callable[[], str],
        measure: Callable[[], float],
        trusts: Callable[[str, str], bool | None],
    ) -> None:
        self.message_type, self.broker, self.host, self.load, self.sender = message_type, broker, host, load, sender
        self.text, self.measure, self.trusts = text, measure, trusts
        self.attributes: Mapping[str, Value] = _NOTHING  # this and the next three: only for a publication
        self.payload: bytes | None = None
        self.subject: str | None = None
        self.publisher = ""
        self.once: set[Hashable] = set()  # keys of once-only actions that have run
        self.answers: dict[tuple[str, str], bool] = {}  # answers of the trust provider, by party and group


class SharedFacts:
    """The facts that do not depend on the receiver: load, size, attributes and filter.

    Common conditions accept it in place of a `RuleContext`. It is cheap to create, so that `CompiledRule.may_apply` can
    test a rule before a `RuleContext` is made.
    """

    __slots__ = ("attributes", "load", "measure", "source")
    message_type = MessageType.PUBLICATION

    def __init__(self, attributes: Mapping[str, Value], load: float, measure: Callable[[], float]) -> None:
        self.attributes, self.load, self.measure = attributes, load, measure
        self.source = _NOBODY

    @property
    def facts(self) -> "SharedFacts":
        """Itself, where a `RuleContext` has its `MessageFacts`."""
        return self


class RuleContext:
    """One copy of a message on its way to one receiver, with the rule that is being applied to it.

    `receiver` is None if there is no next hop.
    """

    __slots__ = ("exception", "facts", "hidden", "outcome", "receiver", "source", "values")

    def __init__(self, facts: MessageFacts, receiver: str | None = None) -> None:
        self.facts = facts
        self.receiver = receiver
        self.source = _NOBODY  # the source of the rule that is being applied
        self.exception = ""
        self.outcome = _UNDECIDED
        self.values: dict[Hashable, Any] = {}  # cached values of conditions, for this receiver
        self.hidden: Callable[[], str] | None = None  # the text without hidden parts, for rules that must not see all

    def for_receiver(self, receiver: str | None) -> "RuleContext":
        """Return the rule context of the same message on its way to another receiver."""
        return RuleContext(self.facts, receiver)

    @property
    def message(self) -> str:
        """The message as text (`$Message`), without the parts that other owners' rules hide from this rule's owner."""
        return self.facts.text() if self.hidden is None else self.hidden()

    @property
    def broker(self) -> str:
        """The broker that applies the rule."""
        return self.facts.broker

    def is_member(self, party: str, group: str) -> bool:
        """Return whether `party` belongs to a trust group; raise `TrustAnswerNeeded` if the answer is not known yet."""
        answers = self.facts.answers
        is_member = answers.get((party, group))
        if is_member is None:
            is_member = self.facts.trusts(party, group)
            if is_member is None:
                raise TrustAnswerNeeded(party, group)
            answers[party, group] = is_member
        return is_member

    def variable(self, name: str) -> str:
        """Return the value of the variable `$name`."""
        match name:
            case "Message":
                return self.message
            case "Sender":
                return self.facts.sender
            case "Receiver":
                return self.receiver or ""
            case "Broker":
                return self.facts.broker
            case "Exception":
                return self.exception
        raise InvalidValueError(f"there is no variable ${name}")


class ElementContext:
    """The rule context as user-defined conditions and actions see it: their first argument.

    Conditions read it; what actions call is recorded in the rule's outcome.
    """

    __slots__ = ("_rule_context",)

    def __init__(self, rule_context: RuleContext) -> None:
        self._rule_context = rule_context

    # What conditions read

    @property
    def message_type(self) -> MessageType:
        """The type of the message."""
        return self._rule_context.facts.message_type

    @property
    def message(self) -> str:
        """The message as text, see `RuleContext.message`."""
        return self._rule_context.message

    @property
    def attributes(self) -> Mapping[str, Value]:
        """The attributes of the publication as it was matched. `add` and `remove` change only the copy that is sent."""
        return self._rule_context.facts.attributes

    @property
    def payload(self) -> bytes | None:
        """The payload of the publication, or None."""
        return self._rule_context.facts.payload

    @property
    def subject(self) -> str | None:
        """The subject of the publication, or None."""
        return self._rule_context.facts.subject

    @property
    def publisher(self) -> str:
        """The publisher of the publication."""
        return self._rule_context.facts.publisher

    @property
    def broker(self) -> str:
        """The broker that applies the rule."""
        return self._rule_context.facts.broker

    @property
    def host(self) -> str:
        """The host of the broker that applies the rule."""
        return self._rule_context.facts.host

    @property
    def sender(self) -> str:
        """The previous hop."""
        return self._rule_context.facts.sender

    @property
    def receiver(self) -> str | None:
        """The next hop, or None if there is none."""
        return self._rule_context.receiver

    @property
    def load(self) -> float:
        """The load of the broker, from 0 to 1."""
        return self._rule_context.facts.load

    @property
    def size(self) -> float:
        """The size of the message on a scale from 0 to 1."""
        return self._rule_context.facts.measure()

    @property
    def filter(self) -> FilterValue | None:
        """The filter with which the rule is associated; None if the rule is attached to the message."""
        return self._rule_context.source.filter

    def is_member(self, party: str, group: str) -> bool:
        """Return whether `party` belongs to a trust group; if the answer is not known yet, the rule is applied again
        later."""
        return self._rule_context.is_member(party, group)

    # What actions do

    def block(self) -> None:
        """Do not send this copy."""
        self._rule_context.outcome.blocks = True

    def remove(self, *names: str) -> None:
        """Remove these attributes from the copy."""
        self._rule_context.outcome.removes.update(names)

    def keep_only(self, *names: str) -> None:
        """Remove all other attributes from the copy; of several calls, only names in all of them stay."""
        self._rule_context.outcome.keep_only(names)

    def add(self, name: str, value: Any) -> None:
        """Add an attribute to the copy, or replace its value."""
        self._rule_context.outcome.added.append((checked_name(name), checked_value(value, name)))

    def convert(self, conversion: Conversion) -> None:
        """Replace the payload by the result of a function of the `OutgoingPublication`, which returns bytes."""
        if not callable(conversion):
            raise InvalidValueError("convert takes a function from the publication, as it will be sent, to bytes")
        self._rule_context.outcome.conversions.append(conversion)

    def flood(self) -> None:
        """Send the message to all neighbours but the previous hop."""
        self._rule_context.outcome.floods = True

    def publish(self, attributes: Mapping[str, Any]) -> None:
        """Publish an event of the broker with these attributes."""
        self._rule_context.outcome.publishes.append(Attributes(attributes))

    def log(self, line: str) -> None:
        """Write a line to the broker's log."""
        self._rule_context.outcome.logs.append(str(line))

    def persist(self, store: str = "messages") -> None:
        """Store the message in a named store of the broker."""
        self._rule_context.outcome.persist(store)


def argument_value(argument: Argument, rule_context: RuleContext) -> Any:
    """Return the value of an argument: a scalar, a list for `Values`, names and values for a `PublishTemplate`."""
    match argument:
        case Constant(value):
            return value
        case Variable(name):
            return rule_context.variable(name)
        case Values():
            return argument_values(argument, rule_context)
        case PublishTemplate(attributes):
            return {name: argument_value(value, rule_context) for name, value in attributes}


def argument_values(values: Values, rule_context: RuleContext) -> list[Any]:
    """Return the values of a list argument."""
    return [argument_value(item, rule_context) for item in values.items]
