"""The broker's log: a line for each record, with fields, written by a thread of its own.

Code that logs never waits for the disk or the terminal: lines go through a bounded queue. Lines that find it full are
dropped and counted.
"""

import io
import json
import logging
import queue
import threading
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from tidings.broker.config.tables import JSON, LogsTable
from tidings.model.errors import InvalidValueError

QUEUED_LINES = 10_000
_PATIENCE = 5.0  # seconds that closing waits for lines to be written
_LIBRARIES = ("asyncio", "uvicorn")  # libraries whose warnings go into the broker's log
_STANDARD_ERROR = 2


class Log:
    """A logger with fields: `Log("tidings.broker").info("connected", client="car-1")`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, **fields: Any) -> None:
        self._log(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self._log(logging.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self._log(logging.WARNING, message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self._log(logging.ERROR, message, fields)

    def exception(self, message: str, **fields: Any) -> None:
        """Log an error together with the exception that is being handled."""
        self._log(logging.ERROR, message, fields, is_exception=True)

    def _log(self, level: int, message: str, fields: dict[str, Any], *, is_exception: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", message, exc_info=is_exception, extra={"fields": fields})


class LogLine(NamedTuple):
    """A line of the log, before it is formatted."""

    seconds: float  # since 1970
    level: str
    message: str
    fields: dict[str, Any]  # of types that JSON has

    @property
    def time(self) -> str:
        """The time as RFC 3339 text in UTC, with milliseconds."""
        return datetime.fromtimestamp(self.seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def as_json(self, broker: str) -> str:
        """Return the line as a JSON object."""
        head = {"time": self.time, "level": self.level, "broker": broker, "message": self.message}
        return json.dumps({**head, "fields": self.fields}, ensure_ascii=False)

    def as_text(self, broker: str) -> str:
        """Return the line as text. Line breaks in its values are escaped, since clients choose their names."""
        fields = "".join(f" {key}={_value(value)}" for key, value in self.fields.items())
        message = self.message if self.message.isprintable() else json.dumps(self.message)
        return f"{self.time} {self.level:<7} {broker}: {message}{fields}"


class BrokerLogs(logging.Handler):
    """A logging handler that writes what the broker logs to the file, or standard error, of its configuration.

    It is installed between `__enter__` and `__exit__`. `dropped` counts lines that had no room in the queue, or that
    could not be written.
    """

    def __init__(self, logs: LogsTable, broker: str) -> None:
        super().__init__()
        self.dropped = 0
        self._broker = broker
        self._dropped_before = 0  # lines dropped since the last line that was queued
        self._lines: queue.Queue[LogLine | None] = queue.Queue(QUEUED_LINES)
        self._thread = threading.Thread(target=self._write, name="logs", daemon=True)
        self._counting, self._swapping = threading.Lock(), threading.Lock()
        self._logs, self._stream = logs, _opened(logs)

    def __enter__(self) -> Self:
        self._levels_before = {name: logging.getLogger(name).level for name in ("tidings", *_LIBRARIES)}
        for name in self._levels_before:
            logging.getLogger(name).addHandler(self)
        self._set_levels()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for name, level in self._levels_before.items():
            logging.getLogger(name).removeHandler(self)
            logging.getLogger(name).setLevel(level)
        try:
            self._lines.put(None, timeout=_PATIENCE)
        except queue.Full:
            return  # the file or terminal blocks; the writing thread ends with the process
        self._thread.join(_PATIENCE)
        if not self._thread.is_alive():
            self._stream.close()

    def change(self, logs: LogsTable) -> None:
        """Apply another configuration. The file is always opened again: log rotation may have moved it away."""
        stream = _opened(logs)
        with self._swapping:
            former, self._stream, self._logs = self._stream, stream, logs
        former.close()
        self._set_levels()

    def emit(self, record: logging.LogRecord) -> None:
        """Put a record into the queue as a `LogLine`, with its message formatted now: its values may change later."""
        fields = {key: _plain(value) for key, value in getattr(record, "fields", {}).items()}
        if record.exc_info:
            fields["exception"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
        if self._dropped_before:
            fields["dropped_before"] = self._dropped_before
        line = LogLine(record.created, record.levelname.lower(), record.getMessage(), fields)
        try:
            self._lines.put_nowait(line)
            self._dropped_before = 0
        except queue.Full:
            self._dropped_before += 1
            self._drop()

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            with self._swapping:
                text = line.as_json(self._broker) if self._logs.format == JSON else line.as_text(self._broker)
                try:
                    self._stream.write(text.encode("utf-8", "backslashreplace") + b"\n")
                except OSError:  # such as a full disk; the next line may succeed
                    self._drop()

    def _drop(self) -> None:
        with self._counting:
            self.dropped += 1

    def _set_levels(self) -> None:
        level = logging.getLevelNamesMapping()[self._logs.level.upper()]
        logging.getLogger("tidings").setLevel(level)
        for name in _LIBRARIES:
            logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _opened(logs: LogsTable) -> io.FileIO:
    if not logs.file:
        return io.FileIO(_STANDARD_ERROR, "w", closefd=False)
    try:
        return io.FileIO(Path(logs.file), "a")
    except OSError as error:
        raise InvalidValueError(f"logs.file: {logs.file}: {error.strerror or error}") from None


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _value(value: Any) -> str:
    """Format a field's value: bare where that is unambiguous, else as JSON."""
    is_bare = isinstance(value, str) and value.isprintable() and value and not set(value) & set(' "=')
    return value if is_bare else json.dumps(value, ensure_ascii=not str(value).isprintable())
