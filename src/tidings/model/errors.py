"""What can be wrong with what a user gave us: one hierarchy, messages that say what to change."""


class TidingsError(Exception):
    """The root of every error that Tidings raises on purpose."""


class InvalidValueError(TidingsError, ValueError):
    """A value, a name, an event or a context that cannot be accepted."""


class SchemaError(TidingsError, ValueError):
    """Something does not conform to a schema; `name` is the offending attribute, where there is one."""

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class FilterError(TidingsError, ValueError):
    """A filter that cannot be read. `position` is the 0-based offset into `text` where the trouble starts."""

    def __init__(self, message: str, text: str = "", position: int = 0) -> None:
        super().__init__(message, text, position)
        self.message = printable(message)
        self.text = text
        self.position = position

    def __str__(self) -> str:
        return f"{self.message}\n{caret(self.text, self.position)}" if self.text else self.message


class RefusedError(TidingsError):
    """An operation that was understood and not accepted: at which step, and for what reason. Nothing was done."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(f"{reason} (refused at the step '{step}')")
        self.step = step
        self.reason = reason


class PublishedBeforeError(RefusedError):
    """An event with this id was published before, as far as is remembered."""


class SecurityError(TidingsError):
    """Something that cannot be trusted; `check` is a word for what it did not pass."""

    def __init__(self, check: str, reason: str) -> None:
        super().__init__(reason)
        self.check = check
        self.reason = reason


class ClosedError(TidingsError):
    """The hub, the client or the subscription was closed before."""


class UnreachableError(TidingsError):
    """No broker answers, where one was looked for."""


class RequestTimeoutError(TidingsError, TimeoutError):
    """The time limit of a request is over, and the broker has not answered: it may still carry the request out."""


class UnsettledError(TidingsError):
    """A simulated world did not come to rest in the time that it was given; the message says what is still moving."""


class MissingPackageError(TidingsError, ImportError):
    """A package that is optional and not installed; the message says how to install it."""


class IndexDamagedError(TidingsError):
    """A saved index that is incomplete, altered or of another format."""


class PolicyError(TidingsError, ValueError):
    """A policy that cannot be read, or that may not stand where it was put.

    `position` is the 0-based offset into `text` where the trouble starts, `line` and `column` count from 1. What
    concerns a policy as a whole has no text; `rule` is then the number of the rule, from 1, where there is one.
    """

    def __init__(self, message: str, text: str = "", position: int = 0, rule: int | None = None) -> None:
        super().__init__(message, text, position, rule)
        self.message = printable(message)
        self.text = text
        self.position = position
        self.rule = rule

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.position) + 1

    @property
    def column(self) -> int:
        return self.position - self.text.rfind("\n", 0, self.position)

    def __str__(self) -> str:
        if not self.text:
            return self.message
        return f"line {self.line}, column {self.column}: {self.message}\n{caret(self.text, self.position)}"


class JournalError(TidingsError):
    """The root of what can go wrong with a journal; `path` is the folder or the file that is meant."""

    def __init__(self, message: str, path: object = None) -> None:
        super().__init__(message)
        self.path = path


class JournalLockedError(JournalError):
    """Another writer has the journal open; `process` is its number, where it is known."""

    def __init__(self, message: str, path: object = None, process: int | None = None) -> None:
        super().__init__(message, path)
        self.process = process


class JournalVersionError(JournalError):
    """The journal is written in a format that this version does not read."""


class JournalDamagedError(JournalError):
    """What was written is not what is there. Nothing is skipped: reading stops, and `repair` is asked for explicitly.

    `offset` is the first record that cannot be vouched for, `position` the byte in the file, where there is one. Where
    it is `repairable`, the message names the command.
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
    """There is no room for what was to be written; nothing of it was. It may be tried again once there is room."""


class JournalFailedError(JournalError):
    """A write or an fsync failed, so that nobody knows what is on the disk. Nothing is taken until it is reopened."""


class OffsetGoneError(JournalError):
    """A reader asks for records that retention has taken away; `first` is the oldest that there is."""

    def __init__(self, message: str, path: object = None, first: int = 0) -> None:
        super().__init__(message, path)
        self.first = first


_WINDOW = 60  # characters shown on either side of the caret


def caret(text: str, position: int) -> str:
    """The line of `text` around `position`, with a caret below it; long lines are cut to what matters."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    end = len(text) if end < 0 else end
    left, right = max(start, position - _WINDOW), min(end, position + _WINDOW)
    before = "..." if left > start else ""
    after = "..." if right < end else ""
    return f"  {before}{printable(text[left:right])}{after}\n  {' ' * (len(before) + position - left)}^"


def printable(text: str) -> str:
    """One line, one column a character: what would break that (newlines, tabs, control characters) becomes a blank."""
    return "".join(c if c.isprintable() else " " for c in text)
