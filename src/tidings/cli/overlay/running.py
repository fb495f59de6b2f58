"""`tidings overlay run`: a local overlay in the foreground, until Ctrl-C."""

import time
from typing import Any

from tidings.cli.overlay.child import Child
from tidings.cli.overlay.local import LocalOverlay
from tidings.cli.stream import until_interrupted
from tidings.cli.terminal import err, out, print_json, table
from tidings.model.errors import TidingsError

_LOOK = 0.2  # seconds


def run(overlay: LocalOverlay, *, as_json: bool) -> None:
    """Starts it, says where everybody is, and waits; a broker that ends is told of, and not started again."""
    with until_interrupted():
        with err.status("starting") as status:
            overlay.start(status.update)
        try:
            _tell(overlay, as_json=as_json)
            _watch(overlay)
        finally:
            err.print("tidings: the brokers are being stopped", markup=False)
            overlay.stop()


def _watch(overlay: LocalOverlay) -> None:
    """Until none is left."""
    running = list(overlay.children.values())
    while running:
        time.sleep(_LOOK)
        for child in [one for one in running if not one.is_running]:
            running.remove(child)
            told = f"tidings: {child.name} has ended with {child.code}; its log is {child.log}"
            err.print(told, markup=False, soft_wrap=True)
    raise TidingsError("no broker is left")


def _tell(overlay: LocalOverlay, *, as_json: bool) -> None:
    rows = [_row(overlay, child) for child in overlay.children.values()]
    if as_json:
        print_json({"folder": str(overlay.folder), "brokers": rows})
        return
    shown = table("broker", "address", "links", "watched at", "process")
    for row in rows:
        http = "" if row["http"] is None else f"http://{row['http']}"
        shown.add_row(row["broker"], row["address"], ", ".join(row["links"]), http, str(row["process"]))
    out.print(shown, markup=False)
    told = f"configurations, logs and journals are in {overlay.folder}; Ctrl-C stops all"
    out.print(told, markup=False, soft_wrap=True)


def _row(overlay: LocalOverlay, child: Child) -> dict[str, Any]:
    return {
        "broker": child.name,
        "address": f"tidings://{child.address}",
        "http": child.http or None,
        "links": overlay.topology.neighbours(child.name),
        "process": child.process,
    }
