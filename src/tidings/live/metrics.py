"""What a broker has counted."""

from collections import Counter

from tidings.model.errors import RefusedError, TidingsError


class Metrics:
    def __init__(self) -> None:
        self.accepted = self.delivered = self.lost = self.told = 0
        self.bytes_in = self.bytes_out = 0
        self.broken_connections = self.misunderstood = self.slow_disconnected = 0
        self.refused: Counter[str] = Counter()  # by step

    def refuse(self, error: TidingsError) -> None:
        self.refused[error.step if isinstance(error, RefusedError) else "admit"] += 1

    def numbers(self) -> dict[str, int]:
        """All that was counted, by name."""
        plain = {name: value for name, value in vars(self).items() if isinstance(value, int)}
        return {**plain, "refused": self.refused.total()}
