"""The command `tidings`. Exit 0 is success, 1 a refusal, 2 a call that was not understood; errors are one line each."""

import io
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Runs the command line and ends the process."""
    from typer.exceptions import Abort, TyperException

    from tidings.cli.app import app
    from tidings.model.errors import TidingsError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a letter still gets the line
    try:
        code = app(standalone_mode=False) or 0
    except TyperException as error:
        code = getattr(error, "exit_code", 2)
        _complain(error.format_message() if hasattr(error, "format_message") else str(error), _path_of(error))
    except TidingsError as error:
        code = 1
        _complain(str(error))
    except (Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:  # whoever read our output has left: `tidings ... | head`
        sys.stderr.close()
        code = 141
    sys.exit(code)


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
