"""The connection of a client, for people and programs at a terminal: lines on standard error when it changes."""

import json
import sys

from tidings.cli.harmless import harmless
from tidings.client.connection_state import ConnectionState


class ConnectionReport:
    """Writes a line to standard error when the connection is lost, and when there is another one.

    It is called in the client's own thread, so it writes whole lines. With `as_json`, a line is a JSON object.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._is_lost = False

    def __call__(self, state: ConnectionState) -> None:
        if state.state == "connected" and self._is_lost:
            self._is_lost = False
            self._write(state, f"connected to {state.broker} at {state.address} again")
        elif state.state == "disconnected" and state.connections and not self._is_lost:
            self._is_lost = True
            self._write(state, f"disconnected from {state.broker} at {state.address}: {state.reason}; trying again")

    def _write(self, state: ConnectionState, sentence: str) -> None:
        line = _json(state) if self._as_json else f"tidings: {sentence}"
        sys.stderr.write(harmless(line) + "\n")
        sys.stderr.flush()


def _json(state: ConnectionState) -> str:
    fields = {"connection": state.state, "broker": state.broker, "address": state.address, "reason": state.reason}
    return json.dumps(fields, ensure_ascii=False)
