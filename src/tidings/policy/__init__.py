"""The policy language: rules that block, change or convert messages, their checks and their evaluation."""

from tidings.policy import presets as policies
from tidings.policy.policy import Policy as Policy
from tidings.policy.registry import policy_action as policy_action
from tidings.policy.registry import policy_condition as policy_condition

__all__ = ["Policy", "policies", "policy_action", "policy_condition"]
