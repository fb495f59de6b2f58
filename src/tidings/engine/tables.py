"""What a broker knows: the advertisements, subscriptions, contexts and policies that it holds."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from tidings.engine.directory import Directory
from tidings.engine.journey import Version
from tidings.model.advertisement import Advertisement
from tidings.model.expression import Constant
from tidings.model.filter import ContextFilter
from tidings.model.schema import Schema
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes, Context
from tidings.policy.application import CompiledPolicy, CompiledRule
from tidings.policy.situation import Source
from tidings.policy.statement import TRUE, Attach, Matching, MessageType, Operation, Point
from tidings.routing.announced import Reach

Ruling = tuple[CompiledRule, Source]  # a rule, and whose it is
_Key = tuple[Operation, MessageType, Matching]
_ON_DELIVERY = (Operation.FORWARD, MessageType.PUBLICATION, Matching.AFTER)
Value = TypeVar("Value", bound=Advertisement | Subscription)
_NOBODY: frozenset[str] = frozenset()
_NOWHERE: Mapping[str, bool] = {}
_UNRULED: Mapping[Any, tuple[Ruling, ...]] = {}


class Filed(Generic[Value]):
    """A filter in a table: where it came from, where it was sent, and the rules that are associated with it."""

    __slots__ = (
        *(
            "_inherited",
            "_rulings",
            "cut",
            "hop",
            "is_client",
            "is_local",
            "is_own",
            "is_plain",
            "operator_policy",
            "policy",
        ),
        *("for_publications", "on_publications"),
        *("bound", "context", "digest", "origin", "past", "reach", "scoped", "senders", "toward", "version"),
        *("flooded", "sent", "source", "value"),
    )

    def __init__(self, value: Value, hop: str, source: Source, *, is_client: bool, is_own: bool) -> None:
        self.value = value
        self.hop = hop  # the client or the neighbour that it came from
        self.is_client, self.is_own = is_client, is_own  # own: the broker's
        self.is_local = is_client  # or of another sub-overlay, which is to a broker what a client is
        self.source = source
        # The neighbours that have it from here; those that a rule, not the strategy, wants to have it; and all that
        # should have it, each with whether it is scoped there. Most filters share the empty ones.
        self.sent: frozenset[str] = _NOBODY
        self.flooded: frozenset[str] = _NOBODY
        self.toward: Mapping[str, bool] = _NOWHERE
        # How it came here, if it is of another broker's client:
        self.origin, self.digest = "", ""
        self.version: Version = (0, 0)
        self.senders: frozenset[str] = _NOBODY  # the neighbours that have sent it and not taken it back
        self.scoped = False  # it is judged here by its subscriber's context
        self.bound: ContextFilter | None = getattr(value, "publishers", None)  # as it is sent, see `placing.bind`
        self.reach: Reach | None = None  # what that selects, where contexts are announced (spcf)
        self.context = b""  # the id of its subscriber's context, and those that it had until lately (spcf)
        self.past: tuple[tuple[bytes, int], ...] = ()
        self.policy: CompiledPolicy | None = None  # the owner's
        self.operator_policy: CompiledPolicy | None = None  # what the operator set here
        self._rulings: Mapping[_Key, tuple[Ruling, ...]] = _UNRULED
        self._inherited: Mapping[MessageType, tuple[Ruling, ...]] = _UNRULED
        self.is_plain = False  # a client's, with a notification each and no rule of its own on what it gets
        # The rules on publications that are applied after matching, and those that publications inherit.
        self.on_publications: tuple[Ruling, ...] = ()
        self.for_publications: tuple[Ruling, ...] = ()
        self.cut: Cut | None = None  # or one whose rule always does the same
        self._note_plainness()

    @property
    def id(self) -> str:
        return self.value.id

    @property
    def owner(self) -> str:
        return self.source.owner

    def govern(self, policy: CompiledPolicy | None, *, operator: bool = False) -> None:
        """Puts a policy in the place of the one before."""
        if operator:
            self.operator_policy = policy
        else:
            self.policy = policy
        rulings: dict[_Key, tuple[Ruling, ...]] = {}
        inherited: dict[MessageType, tuple[Ruling, ...]] = {}
        operators = Source(self.source.kind, self.id, self.owner, self.source.filter, self.source.names, True, True)
        for given, source in ((self.policy, self.source), (self.operator_policy, operators)):
            for key, rules in ({} if given is None else given.rules).items():
                here = tuple((rule, source) for rule in rules if rule.rule.attach is Attach.NEVER)
                down = tuple((rule, source) for rule in rules if rule.rule.attach is not Attach.NEVER)
                if here:
                    rulings[key] = (*rulings.get(key, ()), *here)
                if down:
                    inherited[key[1]] = (*inherited.get(key[1], ()), *down)
        self._rulings, self._inherited = rulings or _UNRULED, inherited or _UNRULED
        self._note_plainness()

    def _note_plainness(self) -> None:
        alone = self.is_client and not self.is_own and getattr(self.value, "notify", "") == "subscription"
        self.on_publications = rulings = self._rulings.get(_ON_DELIVERY, ())
        self.for_publications = self._inherited.get(MessageType.PUBLICATION, ())
        self.is_plain = alone and not rulings
        self.cut = cut_of(*rulings[0]) if alone and len(rulings) == 1 else None

    def rulings(
        self, operation: Operation, message: MessageType, matching: Matching = Matching.AFTER
    ) -> tuple[Ruling, ...]:
        """The rules on such messages that are applied here, those that messages inherit left out."""
        return self._rulings.get((operation, message, matching), ())

    def inherited(self, message: MessageType) -> tuple[Ruling, ...]:
        """The rules that messages of that type inherit."""
        return self._inherited.get(message, ())

    def concerns(self, message: MessageType) -> bool:
        """Whether any rule is about such messages."""
        return message in self._inherited or any(of is message for _, of, _ in self._rulings)

    def has_one_rule_on(self, message: MessageType) -> bool:
        """Whether there is no other about such messages, and none that they inherit."""
        about = [rules for (_, of, _), rules in self._rulings.items() if of is message]
        return message not in self._inherited and len(about) == 1 and len(about[0]) == 1


class Cut:
    """What a rule leaves of every notification alike: known when the rule is set, not when an event comes."""

    __slots__ = ("kept", "removed")

    def __init__(self, kept: frozenset[str] | None, removed: frozenset[str]) -> None:
        self.kept = None if kept is None else tuple(sorted(kept))  # mostly fewer than an event has
        self.removed = removed

    def of(self, attributes: Attributes) -> Attributes:
        if self.kept is None:
            removed = self.removed
            left = {name: value for name, value in attributes.items() if name not in removed}
        else:
            left = {name: attributes[name] for name in self.kept if name in attributes}
        return attributes if len(left) == len(attributes) else Attributes.trusted(left)


def cut_of(rule: CompiledRule, source: Source) -> Cut | None:
    """The cut of a rule that always removes the same from what is delivered, and does nothing else."""
    first = rule.rule.branches[0]
    if first.condition != TRUE or not first.actions or Point.EGRESS not in rule.rule.points:
        return None
    kept: frozenset[str] | None = None
    removed: frozenset[str] = frozenset()
    for call in first.actions:
        names = frozenset(str(one.value) for one in call.arguments if isinstance(one, Constant))
        if call.name == "RemoveAttributes":
            removed |= names
            continue
        if call.name not in ("TrimAttributes", "KeepOnlyAttributes"):
            return None
        only = source.names if call.name == "TrimAttributes" else names
        kept = only if kept is None else kept & only
    return Cut(None if kept is None else kept - removed, removed)


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
