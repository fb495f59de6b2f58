"""The command `tidings`. Exit 0 is success, 1 a refusal, 2 a call that was not understood; errors are one line each."""

import io
import logging
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Runs the command line and ends the process."""
    log = logging.getLogger("tidings.client")
    log.addFilter(_is_not_reported)
    try:
        code = _run()
    except KeyboardInterrupt:  # also while it is still being loaded
        code = 130
    finally:
        log.removeFilter(_is_not_reported)
    sys.exit(code)


def _is_not_reported(record: logging.LogRecord) -> bool:
    """Whether a line of the log is about something else than the connection: a `ConnectionReport` tells of that."""
    return not hasattr(record, "connection_state")


def _run() -> int:
    """The exit code."""
    from typer.exceptions import Abort, TyperException

    from tidings.cli.app import app
    from tidings.model.errors import TidingsError
    from tidings.model.packages import missing_package

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a letter still gets the line
    try:
        code = app(standalone_mode=False) or 0
        if sys.stdout is not None:
            sys.stdout.flush()
    except TyperException as error:
        code = getattr(error, "exit_code", 2)
        _complain(error.format_message() if hasattr(error, "format_message") else str(error), _path_of(error))
    except TidingsError as error:
        code = 1
        _complain(str(error))
    except ImportError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        code = 1
        _complain(str(missing))
    except Abort:
        code = 130
    except BrokenPipeError:  # whoever read our output has left: `tidings ... | head`
        sys.stderr.close()
        code = 141
    except OSError as error:  # such as no room where the output goes
        code = 1
        _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))
        _write_nowhere()
    return int(code)


def _write_nowhere() -> None:
    """What is left of the output goes nowhere: else the interpreter tries once more at its end, and complains."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _path_of(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else "tidings"


def _complain(message: str, command: str = "") -> None:
    if message.startswith("Usage:"):  # a group without a verb shows its help
        sys.stderr.write(message + "\n")
        return
    from tidings.cli.harmless import harmless

    hint = f" (see '{command} --help')" if command else ""
    sys.stderr.write(f"tidings: {harmless(message)}{hint}\n")
