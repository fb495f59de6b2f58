"""What a broker tells of itself: a line each, with what it is about as fields, written by a thread of its own.

Whoever logs never waits for the disk or the terminal: lines go through a queue, and what has no room in it is counted.
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

from tidings.live.configuration.tables import JSON, Logs
from tidings.model.errors import InvalidValueError

QUEUED_LINES = 10_000
_PATIENCE = 5.0  # seconds that closing waits for lines to be written
_OTHERS = ("asyncio", "uvicorn")  # libraries whose warnings belong into the broker's log
_STANDARD_ERROR = 2


class Log:
    """`Log("tidings.live").info("connected", client="car-1")`: a message, and what it is about."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, **fields: Any) -> None:
        self._say(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self._say(logging.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self._say(logging.WARNING, message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self._say(logging.ERROR, message, fields)

    def exception(self, message: str, **fields: Any) -> None:
        """An error, with the exception that is being handled."""
        self._say(logging.ERROR, message, fields, is_exception=True)

    def _say(self, level: int, message: str, fields: dict[str, Any], *, is_exception: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", message, exc_info=is_exception, extra={"fields": fields})


class Line(NamedTuple):
    seconds: float  # since 1970
    level: str
    message: str
    fields: dict[str, Any]  # values that JSON knows

    @property
    def time(self) -> str:
        return datetime.fromtimestamp(self.seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def as_json(self, broker: str) -> str:
        told = {"time": self.time, "level": self.level, "broker": broker, "message": self.message}
        return json.dumps({**told, "fields": self.fields}, ensure_ascii=False)

    def as_text(self, broker: str) -> str:
        """One line, whatever is in it: clients choose their names."""
        fields = "".join(f" {key}={_value(value)}" for key, value in self.fields.items())
        message = self.message if self.message.isprintable() else json.dumps(self.message)
        return f"{self.time} {self.level:<7} {broker}: {message}{fields}"


class BrokerLogs(logging.Handler):
    """From `with` on, everything that the broker logs goes where its configuration says.

    `dropped` lines had no room in the queue, or could not be written.
    """

    def __init__(self, logs: Logs, broker: str) -> None:
        super().__init__()
        self.dropped = 0
        self._broker = broker
        self._unsaid = 0  # lines that were dropped since the last one that was not
        self._lines: queue.Queue[Line | None] = queue.Queue(QUEUED_LINES)
        self._thread = threading.Thread(target=self._write, name="logs", daemon=True)
        self._counting, self._swapping = threading.Lock(), threading.Lock()
        self._logs, self._stream = logs, _opened(logs)

    def __enter__(self) -> Self:
        self._before = {name: logging.getLogger(name).level for name in ("tidings", *_OTHERS)}
        for name in self._before:
            logging.getLogger(name).addHandler(self)
        self._set_levels()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for name, level in self._before.items():
            logging.getLogger(name).removeHandler(self)
            logging.getLogger(name).setLevel(level)
        try:
            self._lines.put(None, timeout=_PATIENCE)
        except queue.Full:
            return  # whoever reads the lines is stuck; the thread ends with the process
        self._thread.join(_PATIENCE)
        if not self._thread.is_alive():
            self._stream.close()

    def change(self, logs: Logs) -> None:
        """Takes another configuration over. The file is opened anew in any case: it may have been moved away."""
        stream = _opened(logs)
        with self._swapping:
            former, self._stream, self._logs = self._stream, stream, logs
        former.close()
        self._set_levels()

    def emit(self, record: logging.LogRecord) -> None:
        """Puts a line into the queue; its text is made here, as what it is about may change before it is written."""
        fields = {key: _plain(value) for key, value in getattr(record, "fields", {}).items()}
        if record.exc_info:
            fields["exception"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
        if self._unsaid:
            fields["dropped_before"] = self._unsaid
        line = Line(record.created, record.levelname.lower(), record.getMessage(), fields)
        try:
            self._lines.put_nowait(line)
            self._unsaid = 0
        except queue.Full:
            self._unsaid += 1
            self._drop()

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            with self._swapping:
                text = line.as_json(self._broker) if self._logs.format == JSON else line.as_text(self._broker)
                try:
                    self._stream.write(text.encode("utf-8", "backslashreplace") + b"\n")
                except OSError:  # a full disk, a terminal that is gone: the next line may fare better
                    self._drop()

    def _drop(self) -> None:
        with self._counting:
            self.dropped += 1

    def _set_levels(self) -> None:
        level = logging.getLevelNamesMapping()[self._logs.level.upper()]
        logging.getLogger("tidings").setLevel(level)
        for name in _OTHERS:
            logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _opened(logs: Logs) -> io.FileIO:
    if not logs.file:
        return io.FileIO(_STANDARD_ERROR, "w", closefd=False)
    try:
        return io.FileIO(Path(logs.file), "a")
    except OSError as error:
        raise InvalidValueError(f"logs.file: {logs.file}: {error.strerror or error}") from None


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _value(value: Any) -> str:
    """Bare where that cannot be misread."""
    is_bare = isinstance(value, str) and value.isprintable() and value and not set(value) & set(' "=')
    return value if is_bare else json.dumps(value, ensure_ascii=not str(value).isprintable())
