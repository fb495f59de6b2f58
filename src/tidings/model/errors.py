"""The exceptions that Tidings raises on purpose: one hierarchy under `TidingsError`.

Every message names what is wrong and, where possible, what to change. `caret`, `printable` and `did_you_mean` format
these messages.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class TidingsError(Exception):
    """The base class of every exception that Tidings raises on purpose."""


class InvalidValueError(TidingsError, ValueError):
    """A value, name, event, context or argument is not acceptable."""


class SchemaError(TidingsError, ValueError):
    """An event, filter or schema does not conform to a schema. `name` is the offending attribute, or None."""

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class FilterError(TidingsError, ValueError):
    """The text of a filter cannot be parsed. `position` is the 0-based offset in `text` where the error starts."""

    def __init__(self, message: str, text: str = "", position: int = 0) -> None:
        super().__init__(message, text, position)
        self.message = printable(message)
        self.text = text
        self.position = position

    def __str__(self) -> str:
        return f"{self.message}\n{caret(self.text, self.position)}" if self.text else self.message


class RefusedError(TidingsError):
    """The engine understood an operation and refused it at `step`, for `reason`. The operation changed nothing."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(f"{reason} (refused at the step '{step}')")
        self.step = step
        self.reason = reason


class PublishedBeforeError(RefusedError):
    """A broker or hub has already accepted an event with this id. Its memory of event ids is bounded."""


class SecurityError(TidingsError):
    """A token, certificate, signature, seal or other security input failed the check that `check` names."""

    def __init__(self, check: str, reason: str) -> None:
        super().__init__(reason)
        self.check = check
        self.reason = reason


class ClosedError(TidingsError):
    """The operation came after the hub, client or subscription was closed."""


class UnreachableError(TidingsError):
    """No broker answered at the addresses that the client tried."""


class RequestTimeoutError(TidingsError, TimeoutError):
    """The broker did not answer a request within its time limit. The broker may still carry out the request."""


class UnsettledError(TidingsError):
    """A simulation did not become idle within the time limit. The message lists the activity that is still pending."""


class MissingPackageError(TidingsError, ImportError):
    """An optional package is not installed or cannot be imported. The message contains the command that installs it."""


class IndexDamagedError(TidingsError):
    """A saved index is incomplete, altered, or of another format."""


class PolicyError(TidingsError, ValueError):
    """A policy cannot be parsed, or is not allowed where it was set.

    `position` is the 0-based offset in `text` where the error starts; `line` and `column` count from 1. An error about
    the policy as a whole has no text; `rule` is then the number of the rule, counted from 1, or None.
    """

    def __init__(self, message: str, text: str = "", position: int = 0, rule: int | None = None) -> None:
        super().__init__(message, text, position, rule)
        self.message = printable(message)
        self.text = text
        self.position = position
        self.rule = rule

    @property
    def line(self) -> int:
        """The line of `position` in `text`, counted from 1."""
        return self.text.count("\n", 0, self.position) + 1

    @property
    def column(self) -> int:
        """The column of `position` in its line, counted from 1."""
        return self.position - self.text.rfind("\n", 0, self.position)

    def __str__(self) -> str:
        if not self.text:
            return self.message
        return f"line {self.line}, column {self.column}: {self.message}\n{caret(self.text, self.position)}"


class JournalError(TidingsError):
    """The base class of all journal errors. `path` is the folder or file concerned, or None."""

    def __init__(self, message: str, path: object = None) -> None:
        super().__init__(message)
        self.path = path


class JournalLockedError(JournalError):
    """Another process or object has the journal open for writing. `process` is its process id, if known."""

    def __init__(self, message: str, path: object = None, process: int | None = None) -> None:
        super().__init__(message, path)
        self.process = process


class JournalVersionError(JournalError):
    """The journal has a format that this version of Tidings does not read."""


class JournalDamagedError(JournalError):
    """The content of a journal file differs from what was written. Reading stops there; only `repair` continues.

    `offset` is the first record that cannot be verified, and `position` the byte in the file, each if known. If
    `repairable`, the message contains the repair command.
    """

    def __init__(
        self,
        message: str,
        path: object = None,
        offset: int | None = None,
        position: int | None = None,
        *,
        repairable: bool = False,
    ) -> None:
        super().__init__(message, path)
        self.offset = offset
        self.position = position
        self.repairable = repairable


class JournalFullError(JournalError):
    """The disk has no room for the records. None of them was written; the caller may retry once there is room."""


class JournalFailedError(JournalError):
    """A write or fsync failed, so the content of the disk is unknown; the journal must be closed and reopened."""


class OffsetGoneError(JournalError):
    """A reader asked for records that retention has removed. `first` is the oldest offset that still exists."""

    def __init__(self, message: str, path: object = None, first: int = 0) -> None:
        super().__init__(message, path)
        self.first = first


_WINDOW = 60  # characters shown on either side of the caret


def caret(text: str, position: int) -> str:
    """Return the line of `text` that contains `position`, shortened if it is long, with a caret below that position."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    end = len(text) if end < 0 else end
    left, right = max(start, position - _WINDOW), min(end, position + _WINDOW)
    before = "..." if left > start else ""
    after = "..." if right < end else ""
    return f"  {before}{printable(text[left:right])}{after}\n  {' ' * (len(before) + position - left)}^"


def printable(text: str) -> str:
    """Return `text` as one line, with a blank for every newline, tab and control character."""
    return "".join(c if c.isprintable() else " " for c in text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" with the known word that is most similar to `word`, or "" if none is similar."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = get_close_matches(word[:64].lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""
