"""The explanation: why a subscription does, or does not, get an event, step by step."""

import msgspec

from tidings.model.notification import Notification


class ExplanationStep(msgspec.Struct, frozen=True):
    """One step of the matching pipeline with its outcome. `reason` is what decided it; it may be empty."""

    name: str
    passed: bool
    reason: str = ""

    def __str__(self) -> str:
        return f"{'passed ' if self.passed else 'stopped'}  {self.name:<11} {self.reason}".rstrip()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one event for one subscription, with every step that the event went through.

    `step` is the step that stopped the event, or "route" if it was delivered. `rules` are the policy rules that blocked
    or changed it; only the operator gets to see them.
    """

    subscription: str
    delivered: bool
    step: str
    reason: str
    steps: tuple[ExplanationStep, ...]
    notification: Notification | None = None  # the notification that the subscriber would get
    rules: tuple[str, ...] = ()

    def __str__(self) -> str:
        verdict = "is delivered" if self.delivered else f"is not delivered: {self.step}"
        return "\n".join([f"{self.subscription}: {verdict}", *(f"  {step}" for step in self.steps)])
