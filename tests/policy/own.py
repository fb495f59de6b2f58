"""Elements of one's own with every kind of parameter and value."""

from typing import Any

from tidings.policy.registry import policy_action, policy_condition


def register() -> list[str]:
    @policy_condition
    def zone_name(rule_context: Any) -> str:
        """The zone that the broker stands in."""
        return "north"

    @policy_condition("HourBetween")
    def hour_between(rule_context: Any, first: int, last: float = 24) -> bool:
        return True

    @policy_condition
    def any_of_zones(rule_context: Any, zones: list[str], exact: bool = False) -> bool:
        return True

    @policy_condition
    def setting(rule_context: Any, name: str) -> Any:
        return None

    @policy_action("ToFormat1", effect="converts", messages=["Publication"])
    def to_format_1(rule_context: Any) -> None: ...

    @policy_action("ToFormat2", effect="converts", messages=["Publication"])
    def to_format_2(rule_context: Any) -> None: ...

    @policy_action(effect="tells", operations=["Forward", "Insert"])
    def tell_everyone(rule_context: Any, *values: Any) -> None: ...

    return ["ZoneName", "HourBetween", "AnyOfZones", "Setting", "ToFormat1", "ToFormat2", "TellEveryone"]
