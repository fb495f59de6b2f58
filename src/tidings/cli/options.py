"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Plot = Annotated[Path | None, typer.Option(help="Draw the result into this file (PNG or SVG).")]

# Of the verbs that speak with a broker.
DEFAULT_BROKER = "tidings://127.0.0.1:7450"
Broker = Annotated[
    str, typer.Option("--connect", envvar="TIDINGS_CONNECT", help="A broker, or several to try, with commas.")
]
Name = Annotated[
    str, typer.Option(help="The client's name; unset: that of the identity's folder, else one that nobody has.")
]
OperatorName = Annotated[str, typer.Option(help="The client's name; the broker's configuration names its operators.")]
IdentityFile = Annotated[
    Path | None,
    typer.Option(
        "--identity",
        envvar="TIDINGS_IDENTITY",
        help="A folder that `tidings ca issue` made, or a TOML file that names the files of authority, certificate and "
        "key, where brokers ask for certificates.",
    ),
]
Format = Annotated[str, typer.Option(help="What the filter is written in: sql, topic, tags, regex, xpath or padres.")]
PolicyFile = Annotated[Path | None, typer.Option(help="The file of a policy, as text or XML.")]

# Of the verbs for secure topics.
IdentityFolder = Annotated[
    Path,
    typer.Option("--identity", envvar="TIDINGS_IDENTITY", help="The folder that `tidings ca issue` made for who asks."),
]
Plain = Annotated[bool, typer.Option("--plain", help="The broker speaks no TLS: for trying, on this machine.")]
Overlay = Annotated[str, typer.Option(help="The name of the overlay, as topic records say it.")]
ServiceBroker = Annotated[
    str,
    typer.Option(
        "--connect", "--broker", envvar="TIDINGS_CONNECT", help="A broker, or several to try, with commas between them."
    ),
]
Wait = Annotated[
    float,
    typer.Option(
        min=0,
        help="While the broker, a discovery node or a centre does not answer, or nothing is found yet, ask again, for "
        "so many seconds.",
        metavar="SECONDS",
    ),
]
ServiceFiles = Annotated[
    list[Path] | None,
    typer.Option("--service", help="With an identity folder: the service file of a key management centre."),
]
TopicFiles = Annotated[
    list[Path] | None,
    typer.Option("--topic", help="With an identity folder: the record of a secure topic, as a file."),
]
FoundTopics = Annotated[
    str | None,
    typer.Option(
        "--find", help="With an identity folder: secure topics to find at discovery nodes first.", metavar="QUERY"
    ),
]
