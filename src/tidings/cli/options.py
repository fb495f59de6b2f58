"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Plot = Annotated[Path | None, typer.Option(help="Draw the result into this file (PNG or SVG).")]
