"""What may pass, and in what shape: the language that policies are written in, and its checks."""

from tidings.policy import factory as policies
from tidings.policy.policy import Policy as Policy
from tidings.policy.registry import policy_action as policy_action
from tidings.policy.registry import policy_condition as policy_condition

__all__ = ["Policy", "policies", "policy_action", "policy_condition"]
