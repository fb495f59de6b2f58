"""What can be said about a policy that is no error: it may be set, but something in it is probably not meant."""

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    WARNING = "warning"  # something never takes effect
    NOTE = "note"  # it takes effect, perhaps not as it reads


class Finding(msgspec.Struct, frozen=True):
    """`rule` and `branch` count from 1; the branches of OnException are counted on behind the others."""

    severity: Severity
    rule: int
    message: str
    branch: int | None = None

    def __str__(self) -> str:
        place = f"rule {self.rule}" + (f", branch {self.branch}" if self.branch else "")
        return f"{self.severity}: {place}: {self.message}"
