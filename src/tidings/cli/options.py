"""Options that several verbs share."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
