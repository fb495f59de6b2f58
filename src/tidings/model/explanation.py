"""An explanation: why a subscription does, or does not, get an event, step by step."""

import msgspec

from tidings.model.notification import Notification


class Step(msgspec.Struct, frozen=True):
    """One step of the pipeline; `reason` says what decided it, where there is something to say."""

    name: str
    passed: bool
    reason: str = ""

    def __str__(self) -> str:
        return f"{'passed ' if self.passed else 'stopped'}  {self.name:<11} {self.reason}".rstrip()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`step` is where it stopped, "route" where it was delivered; `steps` are all that it came to.

    `rules` are those that stopped it or shaped what is delivered; only the operator is told.
    """

    subscription: str
    delivered: bool
    step: str
    reason: str
    steps: tuple[Step, ...]
    notification: Notification | None = None  # as it would be delivered
    rules: tuple[str, ...] = ()

    def __str__(self) -> str:
        verdict = "is delivered" if self.delivered else f"is not delivered: {self.step}"
        return "\n".join([f"{self.subscription}: {verdict}", *(f"  {step}" for step in self.steps)])
