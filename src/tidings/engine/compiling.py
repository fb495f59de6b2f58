"""Policies, from text to what can be applied: each is read and compiled once."""

from functools import lru_cache

from tidings.policy import registry
from tidings.policy.application import CompiledPolicy, compiled
from tidings.policy.policy import Policy
from tidings.policy.statement import Rule


def compiled_text(text: str) -> CompiledPolicy:
    """The policy of a text, or a `PolicyError`."""
    return _of_text(text, registry.version())


def compiled_rules(rules: tuple[Rule, ...]) -> CompiledPolicy:
    return _of_rules(rules, registry.version())


@lru_cache(maxsize=4096)
def _of_text(text: str, _: int) -> CompiledPolicy:
    return compiled(Policy.parse(text))


@lru_cache(maxsize=4096)
def _of_rules(rules: tuple[Rule, ...], _: int) -> CompiledPolicy:
    return compiled(Policy(rules))
