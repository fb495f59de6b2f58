"""The commands of `tidings journal`: check, repair, trim and show a journal."""

from pathlib import Path
from typing import Annotated

import typer

from tidings.cli.options import AsJson, CommandGroup

journal = CommandGroup(
    name="journal",
    short_help="The journal of a hub or a broker: check, show, repair, trim.",
    help="The journal of a hub or a broker: check, show, repair and trim it.\n\nExample: tidings journal check data/b1",
)
Folder = Annotated[Path, typer.Argument(help="The journal's folder.", metavar="FOLDER")]


@journal.command(name="check", short_help="Read every byte of a journal and report damage.")
def journal_check(folder: Folder, as_json: AsJson = False) -> None:
    """Read every durable byte of a journal, and report its extent and its damage; also beside a running broker.

    Nothing is changed. The exit code is 1 if anything is damaged.

    Example: tidings journal check data/b1
    """
    from tidings.cli.actions.journal import check

    check(folder, as_json=as_json)


@journal.command(name="repair", short_help="Make a damaged journal readable again.")
def journal_repair(
    folder: Folder,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Repair a damaged journal so that it opens: keep what can be read, mark what is lost, put damaged files aside.

    Example: tidings journal repair data/b1 --dry-run
    """
    from tidings.cli.actions.journal import repair

    repair(folder, dry_run=dry_run, as_json=as_json)


@journal.command(name="retain", short_help="Remove the oldest files that are not needed any more.")
def journal_retain(
    folder: Folder,
    days: Annotated[
        float | None, typer.Option(min=0, help="Keep the records of this many days.", metavar="DAYS")
    ] = None,
    size: Annotated[
        int | None, typer.Option("--bytes", min=0, help="Keep this many bytes, the newest.", metavar="NUMBER")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remove the oldest records, except those that a durable subscription has not acknowledged or no snapshot covers.

    A running broker does so itself, as its configuration says.

    Example: tidings journal retain data/b1 --days 30
    """
    from tidings.cli.actions.journal import retain

    retain(folder, days, size, as_json=as_json)


@journal.command(name="show", short_help="Print the records of a journal, a JSON object a line.")
def journal_show(
    folder: Folder,
    start: Annotated[
        int | None, typer.Option("--from", min=0, help="Begin at this offset, not the oldest.", metavar="OFFSET")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The maximum number of records.", metavar="NUMBER")] = 100,
    as_json: Annotated[
        bool, typer.Option("--json", help="Accepted for uniformity: the output is always JSON lines.")
    ] = False,
) -> None:
    """Print the durable records of a journal, a JSON object a line; also beside a running broker.

    Example: tidings journal show data/b1 --from 1200 --limit 10 | jq .attributes
    """
    from tidings.cli.actions.journal import show

    show(folder, start, limit)
