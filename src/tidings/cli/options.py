"""Command line options that several commands share, and parsers of their values."""

import base64
import datetime as dt
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from tidings.model.errors import InvalidValueError

_Function = TypeVar("_Function", bound=Callable[..., Any])


class DescribedCommand(TyperCommand):
    """A command whose help names each argument by a word, without the type that its value has in the program."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line behind the command."""
        arguments = [_argument_text(one) for one in self.get_params(ctx) if one.param_type_name == "argument"]
        return [self.options_metavar or "", *arguments]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options, each with its help."""
        for kind, title in (("argument", "Arguments"), ("option", "Options")):
            params = [one for one in self.get_params(ctx) if one.param_type_name == kind]
            records = [record for one in params if (record := one.get_help_record(ctx)) is not None]
            if kind == "argument":
                records = [(name.partition(" <")[0], text) for name, text in records]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _argument_text(argument: Any) -> str:
    """Return an argument as the usage line shows it, in brackets if it may be left out."""
    text = str(argument.metavar or argument.name.upper())
    if argument.nargs != 1 and not text.endswith("..."):
        text += "..."
    return text if argument.required else f"[{text}]"


class CommandGroup(typer.Typer):
    """A group of commands with plain help texts, where `-h` is `--help`."""

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        defaults = {
            "context_settings": {"help_option_names": ["-h", "--help"]},
            "no_args_is_help": not settings.get("invoke_without_command", False),
            "add_completion": False,
            "rich_markup_mode": None,
            "pretty_exceptions_enable": False,
        }
        super().__init__(name=name, **{**defaults, **settings})

    def command(self, name: str | None = None, **settings: Any) -> Callable[[_Function], _Function]:
        """Return a decorator that adds a function as a command of the group."""
        return super().command(name, **{"cls": DescribedCommand, **settings})


AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Plot = Annotated[Path | None, typer.Option(help="Draw the result into this file (PNG or SVG).", metavar="FILE")]

# Options of commands that connect to a broker.
DEFAULT_BROKER = "tidings://127.0.0.1:7450"
Broker = Annotated[
    str,
    typer.Option(
        "--connect",
        envvar="TIDINGS_CONNECT",
        help="The broker's address, or several to try, separated by commas.",
        metavar="ADDRESS",
    ),
]
Name = Annotated[
    str,
    typer.Option(
        help="The client's name; by default that of the identity's certificate, else a random one.", metavar="NAME"
    ),
]
OperatorName = Annotated[
    str,
    typer.Option(help="The client's name, which the broker's configuration lists among its operators.", metavar="NAME"),
]
IdentityFile = Annotated[
    Path | None,
    typer.Option(
        "--identity",
        envvar="TIDINGS_IDENTITY",
        help="A folder that `tidings ca issue` made, or a TOML file that names the files of authority, certificate and "
        "key, where brokers ask for certificates.",
        metavar="PATH",
    ),
]
Format = Annotated[
    str, typer.Option(help="The filter's format: sql, topic, tags, regex, xpath or padres.", metavar="FORMAT")
]
PolicyFile = Annotated[Path | None, typer.Option(help="The file of a policy, as text or XML.", metavar="FILE")]

# Options of commands for secure topics.
IdentityFolder = Annotated[
    Path,
    typer.Option(
        "--identity",
        envvar="TIDINGS_IDENTITY",
        help="The folder that `tidings ca issue` made for this client.",
        metavar="FOLDER",
    ),
]
Plain = Annotated[bool, typer.Option("--plain", help="Connect without TLS, to try things out on this machine.")]
Overlay = Annotated[str, typer.Option(help="The name of the overlay, as in topic records.", metavar="NAME")]
ServiceBroker = Annotated[
    str,
    typer.Option(
        "--connect",
        "--broker",
        envvar="TIDINGS_CONNECT",
        help="The broker's address, or several to try, separated by commas.",
        metavar="ADDRESS",
    ),
]
Wait = Annotated[
    float,
    typer.Option(
        min=0,
        help="Seconds to keep asking while the broker, a discovery node or a centre does not answer, or nothing is "
        "found.",
        metavar="SECONDS",
    ),
]
ServiceFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--service", help="With an identity folder: the service file of a key management centre.", metavar="FILE"
    ),
]
TopicFiles = Annotated[
    list[Path] | None,
    typer.Option("--topic", help="With an identity folder: the record of a secure topic, as a file.", metavar="FILE"),
]
FoundTopics = Annotated[
    str | None,
    typer.Option(
        "--find",
        help="With an identity folder: secure topics to find at discovery nodes before the start.",
        metavar="QUERY",
    ),
]


def parse_json_object(text: str | bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object, such as the attributes of an event.

    Raises InvalidValueError, naming `where`, for anything else.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"{where} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidValueError(f'{where} must be a JSON object, such as {{"class": "report"}}')
    return value


def parse_pairs(arguments: Iterable[str]) -> dict[str, Any]:
    """Parse `name=value` arguments, such as `x=1.0 name=bus`.

    A value that is valid JSON is decoded, any other is a string.

    Raises typer.BadParameter for an argument without a name or without `=`.
    """
    values: dict[str, Any] = {}
    for argument in arguments:
        name, sign, text = argument.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f"{argument!r} is not a pair such as x=1.0")
        try:
            values[name] = json.loads(text)
        except (ValueError, RecursionError):
            values[name] = text
    return values


def read_file(path: Path) -> bytes:
    """Return the content of a file. Raises InvalidValueError if the file cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None


def payload_text(payload: bytes | None) -> str | dict[str, str] | None:
    """Return a payload in its JSON form: a string if it is UTF-8, else `{"base64": "..."}`, and None for no payload."""
    if payload is None:
        return None
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}


def parse_payload(value: Any) -> bytes | None:
    """Decode a payload from its JSON form, as `payload_text` writes it.

    Raises InvalidValueError for any other value.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except ValueError as error:
            raise InvalidValueError(f"payload: is not base64: {error}") from None
    raise InvalidValueError('payload: must be a text, or {"base64": "..."}')


def parse_time(text: str | None, name: str) -> dt.datetime | None:
    """Parse an ISO 8601 time such as 2026-01-31T12:00:00Z; without a time zone it is UTC.

    Raises typer.BadParameter, naming the option `name`, for a malformed time.
    """
    if text is None:
        return None
    try:
        time = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time such as 2026-01-31T12:00:00Z", param_hint=f"'{name}'"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)
