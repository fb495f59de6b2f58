"""A policy: the rules that govern messages, as a value that can be read and written in two notations."""

from typing import Self

import msgspec

from tidings.model.errors import PolicyError
from tidings.model.limits import MAX_POLICY_RULES
from tidings.policy import grammar, text
from tidings.policy.statement import Rule


class Policy(msgspec.Struct, frozen=True):
    """One or more rules. `str` gives the canonical text, which parses to an equal policy."""

    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.rules, tuple) or not self.rules or not all(isinstance(one, Rule) for one in self.rules):
            raise PolicyError("a policy has at least one rule; Policy.parse(...) reads text, Policy.from_xml(...) XML")
        if len(self.rules) > MAX_POLICY_RULES:
            raise PolicyError(f"more than MAX_POLICY_RULES ({MAX_POLICY_RULES}) rules")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the policy language, or raises a `PolicyError` that says what to change, and where."""
        return cls(grammar.parse(text))

    @classmethod
    def from_xml(cls, text: str | bytes) -> Self:
        """Reads the XML notation, or raises a `PolicyError` that names the line."""
        from tidings.policy.xml import rules_from_xml  # lxml is loaded by those who need it

        return cls(rules_from_xml(text))

    def to_xml(self) -> str:
        """The policy as XML; reading it back gives an equal policy."""
        from tidings.policy.xml import rules_to_xml

        return rules_to_xml(self.rules)

    def __str__(self) -> str:
        return text.written(self.rules)
