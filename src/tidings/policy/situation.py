"""What the elements of a rule get to see and to do: the message, where it is, and what is to become of it.

A `Situation` is one message on its way to one receiver. Conditions read it; actions record in its `outcome` what they
want done. It is also what conditions and actions of one's own are given as their first parameter.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from tidings.model.errors import InvalidValueError
from tidings.model.filter import Filter
from tidings.model.limits import MAX_NAME_CHARACTERS
from tidings.model.notification import Trace
from tidings.model.values import BARE_NAME, Attributes, Value, checked_name, checked_value
from tidings.policy.statement import MessageType

Conversion = Callable[["Shaped"], bytes]


class NeedsAnswer(Exception):  # noqa: N818 - a question, not an error
    """Nobody knows yet whether the party belongs to the group: the rule waits, it does not fail."""

    def __init__(self, party: str, group: str) -> None:
        super().__init__(f"does {party} belong to {group}?")
        self.party, self.group = party, group


class Source:
    """Whose rule it is: of the message itself, of an advertisement, a subscription or a filter of the broker's own."""

    __slots__ = ("filter", "governs", "id", "kind", "names", "operators", "owner")

    def __init__(
        self,
        kind: str,
        id: str,  # noqa: A002 - the filter's own word
        owner: str,
        filter: Filter | None = None,  # noqa: A002
        names: frozenset[str] = frozenset(),
        governs: bool = False,
        operators: bool = False,
    ) -> None:
        self.kind, self.id, self.owner, self.filter = kind, id, owner, filter
        self.names = names  # of the attributes that the filter speaks of
        self.governs = governs  # whether it may decide for others
        self.operators = operators  # what the operator set, beside the owner's

    @property
    def key(self) -> tuple[str, str, bool]:
        return self.kind, self.id, self.operators

    def __str__(self) -> str:
        if self.kind == "message":
            return "the message itself"
        return f"the {self.kind} {self.id}{', by the operator' if self.operators else ''}"


_NOBODY = Source("message", "", "")
_NOTHING: Mapping[str, Value] = {}


class Shaped:
    """A publication as it will be sent: what a conversion writes."""

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


class Outcome:
    """What one rule wants done with one copy of a message, gathered while its actions are executed."""

    __slots__ = (
        *("added", "allows", "blocks", "branch", "conversions", "failure", "floods", "forwards_to", "keeps", "logs"),
        *("mended", "once", "persists", "publishes", "removes", "trace", "trims", "uninserts"),
    )

    def __init__(self, branch: int) -> None:
        self.branch = branch  # which branch of the rule it was, from 1; those of OnException count on
        self.allows = False  # the branch has no actions: an explicit 'let it pass'
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
        self.once: list[Hashable] = []  # what has been told and is not told again for this message
        self.mended: str | None = None  # the exception that OnException took care of
        self.failure: str | None = None  # the exception that nobody took care of

    @property
    def changes(self) -> bool:
        return bool(self.removes or self.keeps is not None or self.added or self.trace or self.conversions)


_UNDECIDED = Outcome(0)  # before any action


class Facts:
    """What is the same for all copies of a message: the message, the broker that has it, and what is known of it.

    `text` and `measure` are asked when a rule wants to know; `trusts` answers None where nobody knows yet.
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
        self.attributes: Mapping[str, Value] = _NOTHING  # of a publication, as are the next three
        self.payload: bytes | None = None
        self.subject: str | None = None
        self.publisher = ""
        self.once: set[Hashable] = set()  # what has been told
        self.answers: dict[tuple[str, str], bool] = {}  # of the trust provider


class Glance:
    """What conditions see that are the same for every receiver: load, size, and the attributes beside a filter.

    It is cheap to make: most rules are looked at only to find that they do not apply.
    """

    __slots__ = ("attributes", "load", "measure", "source")
    message_type = MessageType.PUBLICATION

    def __init__(self, attributes: Mapping[str, Value], load: float, measure: Callable[[], float]) -> None:
        self.attributes, self.load, self.measure = attributes, load, measure
        self.source = _NOBODY

    @property
    def size(self) -> float:
        return self.measure()

    @property
    def filter(self) -> Filter | None:
        return self.source.filter


class Situation:
    """One message on its way to one receiver; None: there is no next hop."""

    __slots__ = ("exception", "facts", "hidden", "outcome", "receiver", "source", "values")

    def __init__(self, facts: Facts, receiver: str | None = None) -> None:
        self.facts = facts
        self.receiver = receiver
        self.source = _NOBODY  # of the rule that is applied
        self.exception = ""
        self.outcome = _UNDECIDED
        self.values: dict[Hashable, Any] = {}  # of conditions, for this receiver
        self.hidden: Callable[[], str] | None = None  # the text for rules that must not tell all of it

    def toward(self, receiver: str | None) -> "Situation":
        """The same message on its way to somebody else."""
        return Situation(self.facts, receiver)

    # What there is to see

    @property
    def message_type(self) -> MessageType:
        return self.facts.message_type

    @property
    def message(self) -> str:
        """The message as text: what `$Message` is; without what others' rules keep from the rule's owner."""
        return self.facts.text() if self.hidden is None else self.hidden()

    @property
    def attributes(self) -> Mapping[str, Value]:
        """Of a publication, as it was matched. They never change; `add` and `remove` say what is to be sent."""
        return self.facts.attributes

    @property
    def payload(self) -> bytes | None:
        return self.facts.payload

    @property
    def subject(self) -> str | None:
        return self.facts.subject

    @property
    def publisher(self) -> str:
        return self.facts.publisher

    @property
    def broker(self) -> str:
        return self.facts.broker

    @property
    def host(self) -> str:
        return self.facts.host

    @property
    def sender(self) -> str:
        """The previous hop."""
        return self.facts.sender

    @property
    def load(self) -> float:
        """How busy the broker is, from 0 to 1."""
        return self.facts.load

    @property
    def size(self) -> float:
        """How large the message is, from 0 to 1."""
        return self.facts.measure()

    @property
    def filter(self) -> Filter | None:
        """The one that the rule is associated with; None where it travels with the message."""
        return self.source.filter

    def is_member(self, party: str, group: str) -> bool:
        """Whether the party belongs to the trust group; if that is not known yet, the rule waits for the answer."""
        answers = self.facts.answers
        known = answers.get((party, group))
        if known is None:
            known = self.facts.trusts(party, group)
            if known is None:
                raise NeedsAnswer(party, group)
            answers[party, group] = known
        return known

    # What can be done

    def block(self) -> None:
        """This copy is not sent."""
        self.outcome.blocks = True

    def remove(self, *names: str) -> None:
        self.outcome.removes.update(names)

    def keep_only(self, *names: str) -> None:
        kept = self.outcome.keeps
        self.outcome.keeps = frozenset(names) if kept is None else kept.intersection(names)

    def add(self, name: str, value: Any) -> None:
        """One more attribute, or another value for one that there is."""
        self.outcome.added.append((checked_name(name), checked_value(value, name)))

    def convert(self, conversion: Conversion) -> None:
        """What the payload will be: the function is given the publication as it will be sent, and answers bytes."""
        if not callable(conversion):
            raise InvalidValueError("convert takes a function from the publication, as it will be sent, to bytes")
        self.outcome.conversions.append(conversion)

    def flood(self) -> None:
        self.outcome.floods = True

    def publish(self, attributes: Mapping[str, Any]) -> None:
        self.outcome.publishes.append(Attributes(attributes))

    def log(self, line: str) -> None:
        self.outcome.logs.append(str(line))

    def persist(self, store: str = "messages") -> None:
        if not BARE_NAME.fullmatch(store) or len(store) > MAX_NAME_CHARACTERS:
            raise InvalidValueError(f"a store is named by letters, digits, _ and dots, not {store!r:.40}")
        self.outcome.persists.append(store)

    def variable(self, name: str) -> str:
        """The value of `$name`."""
        match name:
            case "Message":
                return self.message
            case "Sender":
                return self.sender
            case "Receiver":
                return self.receiver or ""
            case "Broker":
                return self.broker
            case "Exception":
                return self.exception
        raise InvalidValueError(f"there is no variable ${name}")
