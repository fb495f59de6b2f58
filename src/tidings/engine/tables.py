"""What a broker knows: the advertisements, subscriptions, contexts and policies that it holds."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from tidings.engine.directory import Directory
from tidings.engine.journey import Version
from tidings.engine.ruled import NO_RULES, Cut, Ruling, rules_of
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
_NOWHERE: Mapping[str, bool] = {}


class Filed(Generic[Value]):
    """A filter in a table, of a client of this broker: where it was sent, and the rules that are associated with it.

    There are very many: what only those have that came from a neighbour is in `Relayed`.
    """

    __slots__ = (
        *("_arrival", "_number", "_rules", "governs", "hop", "is_own", "is_plain", "names", "value"),
        *("bound", "context", "flooded", "origin", "reach", "sent", "toward"),
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
        self.origin = origin  # the broker whose client's it is
        self.is_own = is_own  # the broker's
        self.governs = governs  # whether its owner's rules may decide for others
        self.names = value.content.names  # of the attributes that it speaks of
        if isinstance(value, Subscription) and value.structure is not None:
            self.names = self.names.union(value.structure.names, value.structure.absent)
        # The neighbours that have it from here; those that a rule, not the strategy, wants to have it; and all that
        # should have it, each with whether it is scoped there. Most filters share the empty ones.
        self.sent: frozenset[str] = _NOBODY
        self.flooded: frozenset[str] = _NOBODY
        self.toward: Mapping[str, bool] = _NOWHERE
        self._arrival = self._number = 0
        self.bound: ContextFilter | None = getattr(value, "publishers", None)  # as it is sent, see `placing.bind`
        self.reach: Reach | None = None  # what that selects, where contexts are announced (spcf)
        self.context = b""  # the id of its subscriber's context (spcf)
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

    __slots__ = ("digest", "is_local", "past", "scoped", "senders")
    is_client = False

    def __init__(
        self, value: Value, hop: str, origin: str, *, is_own: bool, governs: bool, is_local: bool = False
    ) -> None:
        super().__init__(value, hop, origin, is_own=is_own, governs=governs)
        self.is_local = is_local
        self.digest = ""
        self.senders = _NOBODY  # the neighbours that have sent it and not taken it back
        self.scoped = False  # it is judged here by its subscriber's context
        self.past = ()  # the ids of contexts that its subscriber had until lately, and until when they count (spcf)


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
