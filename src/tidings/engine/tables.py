"""What a broker knows: the advertisements, subscriptions, contexts and policies that it holds."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from tidings.model.advertisement import Advertisement
from tidings.model.subscription import Subscription
from tidings.policy.application import CompiledPolicy, CompiledRule
from tidings.policy.situation import Source
from tidings.policy.statement import Attach, Matching, MessageType, Operation

Ruling = tuple[CompiledRule, Source]  # a rule, and whose it is
Value = TypeVar("Value", bound=Advertisement | Subscription)


class Filed(Generic[Value]):
    """A filter in a table: where it came from, where it was sent, and the rules that are associated with it."""

    __slots__ = (
        *("_rulings", "hop", "is_client", "is_own", "is_plain", "operator_policy", "policy", "sent", "source", "value"),
    )

    def __init__(self, value: Value, hop: str, source: Source, *, is_client: bool, is_own: bool) -> None:
        self.value = value
        self.hop = hop  # the client or the neighbour that it came from
        self.is_client, self.is_own = is_client, is_own  # own: the broker's
        self.source = source
        self.sent: set[str] = set()  # the neighbours that have it from here
        self.policy: CompiledPolicy | None = None  # the owner's
        self.operator_policy: CompiledPolicy | None = None  # what the operator set here
        self._rulings: dict[tuple[Operation, MessageType, Matching], tuple[Ruling, ...]] = {}
        self._note_plainness()

    @property
    def id(self) -> str:
        return self.value.id

    @property
    def owner(self) -> str:
        return self.source.owner

    @property
    def has_policy(self) -> bool:
        return self.policy is not None or self.operator_policy is not None

    def govern(self, policy: CompiledPolicy | None, *, operator: bool = False) -> None:
        """Puts a policy in the place of the one before."""
        if operator:
            self.operator_policy = policy
        else:
            self.policy = policy
        self._rulings = {}
        operators = Source(self.source.kind, self.id, self.owner, self.source.filter, self.source.names, governs=True)
        for given, source in ((self.policy, self.source), (self.operator_policy, operators)):
            for key, rules in ({} if given is None else given.rules).items():
                self._rulings[key] = (*self._rulings.get(key, ()), *((rule, source) for rule in rules))
        self._note_plainness()

    def _note_plainness(self) -> None:
        """Plain: a client's, a notification each, and no rule of its own on what it gets."""
        together = getattr(self.value, "notify", "subscription") == "client"
        self.is_plain = self.is_client and not together and not self.concerns(MessageType.PUBLICATION)

    def rulings(
        self, operation: Operation, message: MessageType, matching: Matching = Matching.AFTER
    ) -> tuple[Ruling, ...]:
        """The rules on such messages that are applied here, those that messages inherit left out."""
        found = self._rulings.get((operation, message, matching), ())
        return tuple(one for one in found if one[0].rule.attach is Attach.NEVER) if found else ()

    def inherited(self, message: MessageType) -> list[Ruling]:
        """The rules that messages of that type inherit."""
        return [
            ruling
            for (_, of, _), rulings in self._rulings.items()
            if of is message
            for ruling in rulings
            if ruling[0].rule.attach is not Attach.NEVER
        ]

    def concerns(self, message: MessageType) -> bool:
        """Whether any rule is about such messages."""
        return any(of is message for _, of, _ in self._rulings)


class Table(Generic[Value]):
    """Filters by id, and by owner."""

    def __init__(self) -> None:
        self._filed: dict[str, Filed[Value]] = {}
        self._owned: dict[str, dict[str, Filed[Value]]] = {}

    def __len__(self) -> int:
        return len(self._filed)

    def __iter__(self) -> Iterator[Filed[Value]]:
        return iter(self._filed.values())

    def __getitem__(self, id: str) -> Filed[Value]:  # noqa: A002
        return self._filed[id]

    def get(self, id: str) -> Filed[Value] | None:  # noqa: A002
        return self._filed.get(id)

    def of(self, owner: str) -> list[Filed[Value]]:
        return list(self._owned.get(owner, {}).values())

    def put(self, filed: Filed[Value]) -> None:
        self._filed[filed.id] = filed
        self._owned.setdefault(filed.owner, {})[filed.id] = filed

    def remove(self, id: str) -> Filed[Value]:  # noqa: A002
        filed = self._filed.pop(id)
        owned = self._owned[filed.owner]
        del owned[id]
        if not owned:
            del self._owned[filed.owner]
        return filed
