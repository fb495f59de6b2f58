"""A refusal: how a step of the pipeline says no, before anything has changed."""


class Refused(Exception):  # noqa: N818 - never leaves the engine
    def __init__(self, step: str, reason: str) -> None:
        super().__init__(reason)
        self.step, self.reason = step, reason


class Outdated(Exception):  # noqa: N818
    """What a broker told is known already, or is older than what is known: nothing happens."""
