"""Policies, from text to what can be applied: each is read and compiled once."""

from functools import lru_cache

from tidings.policy import registry
from tidings.policy.application import CompiledPolicy, compiled
from tidings.policy.policy import Policy
from tidings.policy.statement import Rule, elements_in

_SMALL, _FEW = 2_048, 32  # characters of a text, conditions and actions


def compiled_text(text: str) -> CompiledPolicy:
    """The policy of a text, or a `PolicyError`."""
    return (_of_text if len(text) <= _SMALL else _of_long_text)(text, registry.version())


def compiled_rules(rules: tuple[Rule, ...]) -> CompiledPolicy:
    elements = sum(map(elements_in, rules))
    return (_of_rules if elements <= _FEW else _of_many_rules)(rules, registry.version())


def _compiled_text(text: str, _: int) -> CompiledPolicy:
    return compiled(Policy.parse(text))


def _compiled_rules(rules: tuple[Rule, ...], _: int) -> CompiledPolicy:
    return compiled(Policy(rules))


# Many small ones, few large ones: whoever sends large policies, always others, does not fill the memory.
_of_text, _of_long_text = lru_cache(4096)(_compiled_text), lru_cache(64)(_compiled_text)
_of_rules, _of_many_rules = lru_cache(4096)(_compiled_rules), lru_cache(64)(_compiled_rules)
