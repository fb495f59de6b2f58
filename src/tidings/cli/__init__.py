"""Run the command `tidings`, and turn errors into one line on standard error and an exit code.

Exit codes: 0 success, 1 an error of Tidings or of the system, 2 a command line that cannot be parsed, 130 interrupted
(Ctrl-C), 141 standard output was closed by its reader.
"""

import io
import logging
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit the process with its exit code."""
    log = logging.getLogger("tidings.client")
    log.addFilter(_is_not_reported)
    try:
        code = _run()
    except KeyboardInterrupt:  # also while modules are still being imported
        code = 130
    finally:
        log.removeFilter(_is_not_reported)
    sys.exit(code)


def _is_not_reported(record: logging.LogRecord) -> bool:
    """Return False for a log record about the connection, which `ConnectionReport` already writes, and True for all
    others."""
    return not hasattr(record, "connection_state")


def _run() -> int:
    """Run the typer application, write an error line if it fails, and return the exit code."""
    from typer.exceptions import Abort, TyperException

    from tidings.cli.app import app
    from tidings.model.errors import TidingsError
    from tidings.model.packages import missing_package

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a character that the terminal's encoding lacks is escaped
    try:
        code = app(standalone_mode=False) or 0
        if sys.stdout is not None:
            sys.stdout.flush()
    except TyperException as error:
        code = getattr(error, "exit_code", 2)
        _print_error(error.format_message() if hasattr(error, "format_message") else str(error), _path_of(error))
    except TidingsError as error:
        code = 1
        _print_error(str(error))
    except ImportError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        code = 1
        _print_error(str(missing))
    except Abort:
        code = 130
    except BrokenPipeError:  # the reader of standard output has exited: `tidings ... | head`
        sys.stderr.close()
        code = 141
    except OSError as error:  # for instance a full disk behind standard output
        code = 1
        _print_error(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))
        _discard_output()
    return int(code)


def _discard_output() -> None:
    """Redirect standard output to /dev/null, so that the interpreter's flush at exit does not fail and print a
    second error."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _path_of(error: Exception) -> str:
    """Return the command path of a typer error (`tidings policy check`), or `tidings` if it has none."""
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else "tidings"


def _print_error(message: str, command: str = "") -> None:
    """Write one error line to standard error, with a hint at the command's `--help` if `command` is given."""
    if message.startswith("Usage:"):  # a command group without a subcommand raises its help text as the error
        sys.stderr.write(message + "\n")
        return
    from tidings.cli.output import escape_control

    hint = f" (see '{command} --help')" if command else ""
    sys.stderr.write(f"tidings: {escape_control(message)}{hint}\n")
