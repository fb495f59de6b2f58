"""The rules of a filter: those of its owner's policy and of the operator's, by what they act on."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tidings.model.expression import Constant
from tidings.model.values import Attributes
from tidings.policy import registry
from tidings.policy.ast import TRUE, Attach, Matching, MessageType, Point, Rule, RuleOperation, elements_in
from tidings.policy.evaluation.compiled import CompiledPolicy, CompiledRule, compile_policy
from tidings.policy.evaluation.evaluation import RuleSource
from tidings.policy.policy import Policy

Ruling = tuple[CompiledRule, RuleSource]  # a rule and its source
_Key = tuple[RuleOperation, MessageType, Matching]
_ON_DELIVERY = (RuleOperation.FORWARD, MessageType.PUBLICATION, Matching.AFTER)
_NONE: Mapping[Any, tuple[Ruling, ...]] = {}


class FilterRules:
    """The compiled rules of one filter; immutable. A changed policy makes a new object.

    Args:
        policy: The owner's policy.
        operator_policy: The policy that this broker's operator set.
        here: The rules that are applied here, by what they act on.
        inherited: The rules that messages inherit, by type of message.
    """

    __slots__ = (
        "_here",
        "_inherited",
        "for_publications",
        "on_publications",
        "operator_policy",
        "policy",
        "projection",
    )

    def __init__(
        self,
        policy: CompiledPolicy | None = None,
        operator_policy: CompiledPolicy | None = None,
        here: Mapping[_Key, tuple[Ruling, ...]] = _NONE,
        inherited: Mapping[MessageType, tuple[Ruling, ...]] = _NONE,
    ) -> None:
        self.policy, self.operator_policy = policy, operator_policy
        self._here, self._inherited = here, inherited
        # The rules on publications that are applied after matching, and those that publications inherit.
        self.on_publications = rulings = here.get(_ON_DELIVERY, ())
        self.for_publications = inherited.get(MessageType.PUBLICATION, ())
        self.projection = (
            static_projection_of(*rulings[0]) if len(rulings) == 1 else None
        )  # a projection, if its only rule is one

    def applied(self, operation: RuleOperation, message: MessageType, matching: Matching) -> tuple[Ruling, ...]:
        """Return the rules on such messages that are applied here, without those that messages inherit."""
        return self._here.get((operation, message, matching), ())

    def inherited(self, message: MessageType) -> tuple[Ruling, ...]:
        """Return the rules that messages of this type inherit."""
        return self._inherited.get(message, ())

    def concern(self, message: MessageType) -> bool:
        """Whether there is any rule on messages of this type."""
        return message in self._inherited or any(of is message for _, of, _ in self._here)

    def has_one_on(self, message: MessageType) -> bool:
        """Whether there is exactly one rule on messages of this type, which is not inherited."""
        about = [rules for (_, of, _), rules in self._here.items() if of is message]
        return message not in self._inherited and len(about) == 1 and len(about[0]) == 1


NO_RULES = FilterRules()  # shared by the many filters without rules


def rules_of(policy: CompiledPolicy | None, operator_policy: CompiledPolicy | None, source: RuleSource) -> FilterRules:
    """Return the rules of a filter from its owner's policy and the operator's policy on it; `source` is the owner."""
    if policy is None and operator_policy is None:
        return NO_RULES
    rulings: dict[_Key, tuple[Ruling, ...]] = {}
    inherited: dict[MessageType, tuple[Ruling, ...]] = {}
    operators = RuleSource(source.kind, source.id, source.owner, source.filter, source.names, True, True)
    for compiled, rule_source in ((policy, source), (operator_policy, operators)):
        for key, rules in ({} if compiled is None else compiled.rules).items():
            here = tuple((rule, rule_source) for rule in rules if rule.rule.attach is Attach.NEVER)
            down = tuple((rule, rule_source) for rule in rules if rule.rule.attach is not Attach.NEVER)
            if here:
                rulings[key] = (*rulings.get(key, ()), *here)
            if down:
                inherited[key[1]] = (*inherited.get(key[1], ()), *down)
    return FilterRules(policy, operator_policy, rulings or _NONE, inherited or _NONE)


class StaticProjection:
    """The same projection for every notification: the attributes that a rule without a condition keeps or removes."""

    __slots__ = ("kept", "removed")

    def __init__(self, kept: frozenset[str] | None, removed: frozenset[str]) -> None:
        self.kept = None if kept is None else tuple(sorted(kept))  # mostly fewer than the event's attributes
        self.removed = removed

    def of(self, attributes: Attributes) -> Attributes:
        """Return the attributes that are left; the same object if nothing is removed."""
        if self.kept is None:
            removed = self.removed
            left = {name: value for name, value in attributes.items() if name not in removed}
        else:
            left = {name: attributes[name] for name in self.kept if name in attributes}
        return attributes if len(left) == len(attributes) else Attributes.trusted(left)


def static_projection_of(rule: CompiledRule, source: RuleSource) -> StaticProjection | None:
    """Return the projection of a rule that always removes the same attributes and does nothing else; None otherwise."""
    first = rule.rule.branches[0]
    if first.condition != TRUE or not first.actions or Point.EGRESS not in rule.rule.points:
        return None
    kept: frozenset[str] | None = None
    removed: frozenset[str] = frozenset()
    for call in first.actions:
        names = frozenset(str(argument.value) for argument in call.arguments if isinstance(argument, Constant))
        if call.name == "RemoveAttributes":
            removed |= names
            continue
        if call.name not in ("TrimAttributes", "KeepOnlyAttributes"):
            return None
        only = source.names if call.name == "TrimAttributes" else names
        kept = only if kept is None else kept & only
    return StaticProjection(None if kept is None else kept - removed, removed)


_SMALL, _FEW = 2_048, 32  # limits of a small policy: characters of its text; conditions and actions


def compiled_text(text: str) -> CompiledPolicy:
    """Return the compiled policy of a text, cached. Raises `PolicyError`."""
    return (_of_text if len(text) <= _SMALL else _of_long_text)(text, registry.version())


def compiled_rules(rules: tuple[Rule, ...]) -> CompiledPolicy:
    """Return the compiled policy of these rules, cached."""
    elements = sum(map(elements_in, rules))
    return (_of_rules if elements <= _FEW else _of_many_rules)(rules, registry.version())


def _compiled_text(text: str, _: int) -> CompiledPolicy:
    return compile_policy(Policy.parse(text))


def _compiled_rules(rules: tuple[Rule, ...], _: int) -> CompiledPolicy:
    return compile_policy(Policy(rules))


# Many small policies are cached but few large ones, so that sending ever new large policies cannot fill the memory.
_of_text, _of_long_text = lru_cache(4096)(_compiled_text), lru_cache(64)(_compiled_text)
_of_rules, _of_many_rules = lru_cache(4096)(_compiled_rules), lru_cache(64)(_compiled_rules)
