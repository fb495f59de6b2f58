"""The policy as a value: rules that are parsed from, and printed as, text or XML."""

from pathlib import Path
from typing import Self

import msgspec

from tidings.model.errors import InvalidValueError, PolicyError
from tidings.model.limits import MAX_POLICY_RULES
from tidings.policy.ast import Rule
from tidings.policy.syntax import grammar, printer


class Policy(msgspec.Struct, frozen=True):
    """One or more rules. `str(policy)` is the canonical text, which parses to an equal policy."""

    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        if (
            not isinstance(self.rules, tuple)
            or not self.rules
            or not all(isinstance(rule, Rule) for rule in self.rules)
        ):
            raise PolicyError("a policy has at least one rule; Policy.parse(...) reads text, Policy.from_xml(...) XML")
        if len(self.rules) > MAX_POLICY_RULES:
            raise PolicyError(f"more than MAX_POLICY_RULES ({MAX_POLICY_RULES}) rules")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the policy language; raise a `PolicyError` with position and correction."""
        return cls(grammar.parse(text))

    @classmethod
    def from_xml(cls, text: str | bytes) -> Self:
        """Parse the XML notation; raise a `PolicyError` that names the line."""
        from tidings.policy.syntax.xml_format import rules_from_xml  # imports lxml, which most programs do not need

        return cls(rules_from_xml(text))

    def to_xml(self) -> str:
        """Return the policy as XML, which `from_xml` parses to an equal policy."""
        from tidings.policy.syntax.xml_format import rules_to_xml

        return rules_to_xml(self.rules)

    def __str__(self) -> str:
        return printer.format_rules(self.rules)


def read_policy(path: Path) -> Policy:
    """Read a policy from a file, in either notation; raise an `InvalidValueError` if the file cannot be read."""
    try:
        return decode_policy(path.read_bytes(), path)
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None


def decode_policy(data: bytes, path: Path) -> Policy:
    """Parse the content of a policy file, in either notation; `path` is only for the error message."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidValueError(f"{path}: is not UTF-8 text") from None
    return Policy.from_xml(data) if text.lstrip().startswith("<") else Policy.parse(text)
