"""The rules of a filter: those of its owner's policy and of the operator's, by what they are about."""

from collections.abc import Mapping
from typing import Any

from tidings.model.expression import Constant
from tidings.model.values import Attributes
from tidings.policy.application import CompiledPolicy, CompiledRule
from tidings.policy.situation import Source
from tidings.policy.statement import TRUE, Attach, Matching, MessageType, Operation, Point

Ruling = tuple[CompiledRule, Source]  # a rule, and whose it is
_Key = tuple[Operation, MessageType, Matching]
_ON_DELIVERY = (Operation.FORWARD, MessageType.PUBLICATION, Matching.AFTER)
_NONE: Mapping[Any, tuple[Ruling, ...]] = {}


class Rules:
    """Never changed: another policy makes others."""

    __slots__ = ("_here", "_inherited", "cut", "for_publications", "on_publications", "operator_policy", "policy")

    def __init__(
        self,
        policy: CompiledPolicy | None = None,  # the owner's
        operator_policy: CompiledPolicy | None = None,  # what the operator set here
        here: Mapping[_Key, tuple[Ruling, ...]] = _NONE,
        inherited: Mapping[MessageType, tuple[Ruling, ...]] = _NONE,
    ) -> None:
        self.policy, self.operator_policy = policy, operator_policy
        self._here, self._inherited = here, inherited
        # The rules on publications that are applied after matching, and those that publications inherit.
        self.on_publications = rulings = here.get(_ON_DELIVERY, ())
        self.for_publications = inherited.get(MessageType.PUBLICATION, ())
        self.cut = cut_of(*rulings[0]) if len(rulings) == 1 else None  # if there is one that always does the same

    def applied(self, operation: Operation, message: MessageType, matching: Matching) -> tuple[Ruling, ...]:
        """Those on such messages that are applied here, those that messages inherit left out."""
        return self._here.get((operation, message, matching), ())

    def inherited(self, message: MessageType) -> tuple[Ruling, ...]:
        """Those that messages of that type inherit."""
        return self._inherited.get(message, ())

    def concern(self, message: MessageType) -> bool:
        """Whether any is about such messages."""
        return message in self._inherited or any(of is message for _, of, _ in self._here)

    def has_one_on(self, message: MessageType) -> bool:
        """Whether there is no other about such messages, and none that they inherit."""
        about = [rules for (_, of, _), rules in self._here.items() if of is message]
        return message not in self._inherited and len(about) == 1 and len(about[0]) == 1


NO_RULES = Rules()  # one for all filters that have none: there are very many of them


def rules_of(policy: CompiledPolicy | None, operator_policy: CompiledPolicy | None, source: Source) -> Rules:
    """Those of both policies of a filter, which is the `source` of its owner's."""
    if policy is None and operator_policy is None:
        return NO_RULES
    rulings: dict[_Key, tuple[Ruling, ...]] = {}
    inherited: dict[MessageType, tuple[Ruling, ...]] = {}
    operators = Source(source.kind, source.id, source.owner, source.filter, source.names, True, True)
    for given, whose in ((policy, source), (operator_policy, operators)):
        for key, rules in ({} if given is None else given.rules).items():
            here = tuple((rule, whose) for rule in rules if rule.rule.attach is Attach.NEVER)
            down = tuple((rule, whose) for rule in rules if rule.rule.attach is not Attach.NEVER)
            if here:
                rulings[key] = (*rulings.get(key, ()), *here)
            if down:
                inherited[key[1]] = (*inherited.get(key[1], ()), *down)
    return Rules(policy, operator_policy, rulings or _NONE, inherited or _NONE)


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
