"""What a broker knows: the advertisements, subscriptions, contexts and policies that it holds."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from tidings.engine.directory import Directory
from tidings.engine.journey import Version
from tidings.engine.placed import NOWHERE, among, placed
from tidings.engine.ruled import NO_RULES, Cut, Ruling, rules_of
from tidings.engine.whose import whose
from tidings.model.advertisement import Advertisement
from tidings.model.filter import ContextFilter
from tidings.model.schema import Schema
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.policy.application import CompiledPolicy
from tidings.policy.situation import Source
from tidings.policy.statement import Matching, MessageType, Operation
from tidings.routing.announced import Reach

Value = TypeVar("Value", bound=Advertisement | Subscription)
_NOBODY: frozenset[str] = frozenset()


class Situated(NamedTuple):
    """What a filter has of the situations of its owner and of others, if they matter; see `Filed`."""

    bound: ContextFilter | None
    reach: Reach | None
    context: bytes


class Filed(Generic[Value]):
    """A filter in a table, of a client of this broker: where it was sent, and the rules that are associated with it.

    There are very many: what only those have that came from a neighbour is in `Relayed`.
    """

    __slots__ = (
        *("_arrival", "_number", "_placed", "_rules", "_situated", "_whose"),
        *("hop", "is_plain", "value"),
    )
    is_client: bool = True
    is_local: bool = True  # a client's, or of another sub-overlay, which is to a broker what a client is
    digest: str = ""
    senders: frozenset[str] = _NOBODY
    scoped: bool = False
    past: tuple[tuple[bytes, int], ...] = ()

    def __init__(self, value: Value, hop: str, origin: str, *, is_own: bool, governs: bool) -> None:
        self.value = value
        self.hop = hop  # the client or the neighbour that it came from
        self._whose = whose(origin, is_own, governs)
        self._placed = NOWHERE
        self._arrival = self._number = 0
        self._situated: Situated | None = None
        self._rules = NO_RULES
        self.is_plain = False  # a client's, with a notification each and no rule of its own on what it gets
        self._note_plainness()

    @property
    def id(self) -> str:
        return self.value.id

    @property
    def owner(self) -> str:
        value = self.value
        return value.subscriber if isinstance(value, Subscription) else value.publisher

    @property
    def names(self) -> frozenset[str]:
        """Of the attributes that it speaks of."""
        value = self.value
        names = value.content.names
        if isinstance(value, Subscription) and value.structure is not None:
            return names.union(value.structure.names, value.structure.absent)
        return names

    @property
    def origin(self) -> str:
        """The broker whose client's it is."""
        return self._whose.origin

    @origin.setter
    def origin(self, origin: str) -> None:
        self._whose = whose(origin, self.is_own, self.governs)

    @property
    def is_own(self) -> bool:
        """Whether it is the broker's."""
        return self._whose.is_own

    @property
    def governs(self) -> bool:
        """Whether its owner's rules may decide for others."""
        return self._whose.governs

    @property
    def bound(self) -> ContextFilter | None:
        """The filter on publishers as it is sent, see `placing.bind`."""
        if self._situated is None:
            return getattr(self.value, "publishers", None)
        return self._situated.bound

    @bound.setter
    def bound(self, bound: ContextFilter | None) -> None:
        if bound is not self.bound:
            self._situated = Situated(bound, self.reach, self.context)

    @property
    def reach(self) -> Reach | None:
        """What that selects, where contexts are announced (spcf)."""
        return None if self._situated is None else self._situated.reach

    @reach.setter
    def reach(self, reach: Reach | None) -> None:
        if reach is not self.reach:
            self._situated = Situated(self.bound, reach, self.context)

    @property
    def context(self) -> bytes:
        """The id of its subscriber's context (spcf)."""
        return b"" if self._situated is None else self._situated.context

    @context.setter
    def context(self, context: bytes) -> None:
        if context != self.context:
            self._situated = Situated(self.bound, self.reach, context)

    @property
    def sent(self) -> frozenset[str]:
        """The neighbours that have it from here."""
        return self._placed.sent

    @sent.setter
    def sent(self, sent: frozenset[str]) -> None:
        self._placed = placed(sent, self._placed.flooded, self._placed.toward)

    @property
    def flooded(self) -> frozenset[str]:
        """The neighbours that a rule, not the strategy, wants to have it."""
        return self._placed.flooded

    @flooded.setter
    def flooded(self, flooded: frozenset[str]) -> None:
        self._placed = placed(self._placed.sent, flooded, self._placed.toward)

    @property
    def toward(self) -> Mapping[str, bool]:
        """All neighbours that should have it, each with whether it is scoped there."""
        return self._placed.toward

    @toward.setter
    def toward(self, toward: Mapping[str, bool]) -> None:
        self._placed = placed(self._placed.sent, self._placed.flooded, toward)

    @property
    def version(self) -> Version:
        """Kept as two numbers, of which all filters of a session share one."""
        return self._arrival, self._number

    @version.setter
    def version(self, version: Version) -> None:
        self._arrival, self._number = version

    @property
    def source(self) -> Source:
        """Whose its rules are. Made when it is asked for: most filters have none."""
        kind = "broker" if self.is_own else "subscription" if isinstance(self.value, Subscription) else "advertisement"
        return Source(kind, self.id, self.owner, self.value.content, self.names, self.governs)

    def govern(self, policy: CompiledPolicy | None, *, operator: bool = False) -> None:
        """Puts a policy in the place of the one before."""
        owners, operators = (self.policy, policy) if operator else (policy, self.operator_policy)
        self._rules = NO_RULES if owners is operators is None else rules_of(owners, operators, self.source)
        self._note_plainness()

    def _note_plainness(self) -> None:
        self.is_plain = self._is_alone and not self._rules.on_publications

    @property
    def _is_alone(self) -> bool:
        """Whether it is a client's that wants a notification for itself."""
        return self.is_client and not self.is_own and getattr(self.value, "notify", "") == "subscription"

    @property
    def policy(self) -> CompiledPolicy | None:
        """The owner's."""
        return self._rules.policy

    @property
    def operator_policy(self) -> CompiledPolicy | None:
        """What the operator set here."""
        return self._rules.operator_policy

    @property
    def on_publications(self) -> tuple[Ruling, ...]:
        """The rules on publications that are applied after matching."""
        return self._rules.on_publications

    @property
    def for_publications(self) -> tuple[Ruling, ...]:
        """Those that publications inherit."""
        return self._rules.for_publications

    @property
    def cut(self) -> Cut | None:
        """What its only rule on notifications always leaves of them."""
        return self._rules.cut if self._rules.cut is not None and self._is_alone else None

    def rulings(
        self, operation: Operation, message: MessageType, matching: Matching = Matching.AFTER
    ) -> tuple[Ruling, ...]:
        """The rules on such messages that are applied here, those that messages inherit left out."""
        return self._rules.applied(operation, message, matching)

    def inherited(self, message: MessageType) -> tuple[Ruling, ...]:
        """The rules that messages of that type inherit."""
        return self._rules.inherited(message)

    def concerns(self, message: MessageType) -> bool:
        """Whether any rule is about such messages."""
        return self._rules.concern(message)

    def has_one_rule_on(self, message: MessageType) -> bool:
        """Whether there is no other about such messages, and none that they inherit."""
        return self._rules.has_one_on(message)


class Relayed(Filed[Value]):
    """One that came from a neighbour, and how."""

    __slots__ = ("_senders", "digest", "is_local", "past", "scoped")
    is_client = False

    def __init__(
        self, value: Value, hop: str, origin: str, *, is_own: bool, governs: bool, is_local: bool = False
    ) -> None:
        super().__init__(value, hop, origin, is_own=is_own, governs=governs)
        self.is_local = is_local
        self.digest = ""
        self._senders = _NOBODY
        self.scoped = False  # it is judged here by its subscriber's context
        self.past = ()  # the ids of contexts that its subscriber had until lately, and until when they count (spcf)

    @property
    def senders(self) -> frozenset[str]:
        """The neighbours that have sent it and not taken it back."""
        return self._senders

    @senders.setter
    def senders(self, senders: frozenset[str]) -> None:
        self._senders = among(senders)


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

    def those(self, ids: Iterable[str]) -> list[Filed[Value]]:
        """Those of the ids, in their order."""
        return [self._filed[one] for one in ids]

    def cuts_at(self, directory: Directory) -> tuple[npt.NDArray[np.int32], list[Cut]] | None:
        """By place the number of a cut, or -1, for those that `Book.special` need not note; None: it notes all."""
        return None

    def of(self, owner: str) -> list[Filed[Value]]:
        return list(self._owned.get(owner, {}).values())

    def count(self, owner: str) -> int:
        return len(self._owned.get(owner, ()))

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


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker knows, to be listed: filters as they were filed, policies by the ids of their filters."""

    advertisements: list[Advertisement]
    subscriptions: list[Subscription]
    contexts: dict[str, Context]
    policies: dict[str, str]
    operator_policies: dict[str, str]
    schemas: list[Schema]
    hops: dict[str, str]  # id -> the client or the neighbour that the filter came from
    sent: dict[str, list[str]]  # id -> the neighbours that it was sent to
