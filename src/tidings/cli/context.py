"""`tidings context`: the situation of clients, set and looked at from the command line."""

from typing import Any

from tidings.cli.caller import Caller
from tidings.cli.terminal import out, print_json, table
from tidings.model.errors import TidingsError


def set_context(caller: Caller, of: str, values: dict[str, Any], *, as_json: bool) -> None:
    """Sets the whole context of a client that has let this one do so."""
    with caller.opened() as client:
        client.set_context(values, of=of)
    if as_json:
        print_json({"client": of, "context": values})


def show_contexts(caller: Caller, wanted: str | None, *, as_json: bool) -> None:
    """The contexts that the broker knows: those of its own clients, and of others as far as its tables need them."""
    with caller.opened(observer=True) as client:
        contexts: dict[str, Any] = client.ask("tables")["contexts"]
    if wanted is not None and wanted not in contexts:
        raise TidingsError(f"the broker knows no context of {wanted}")
    found = contexts if wanted is None else {wanted: contexts[wanted]}
    if as_json:
        print_json(found)
        return
    shown = table("client", "context")
    for name, values in found.items():
        shown.add_row(name, " ".join(f"{key}={value}" for key, value in values.items()))
    out.print(shown, markup=False)
