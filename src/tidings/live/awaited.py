"""What a session is told of an operation that cannot be handled yet."""

from tidings.hub.outcome import Outcome


class AwaitedError(Exception):
    """An operation waits for the answer to a question of trust. Nothing of it was done yet; what was to be done before
    it is in `ahead`."""

    def __init__(self, question: tuple[str, str], ahead: Outcome) -> None:
        super().__init__("whether {} belongs to {} is not known yet".format(*question))
        self.question, self.ahead = question, ahead
