"""A hub whose process is killed at any moment and opened again: what it acknowledged is there."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sizes import sized
from tidings.hub import Hub

pytestmark = pytest.mark.process

ROUNDS = sized(4, 12)

# What a kill may leave: an unfinished write, or a log beside the segment into which it had just been rolled.
EXPECTED_NOTES = ("unfinished", "cut off", "had been rolled into")

# Three threads do everything that a hub acknowledges, and say so, line by line, after each call has returned.
WORKER = """
import json, os, sys, threading
import tidings as td
from tidings.runtime import journal_upkeep
from tidings.journal import JournalOptions
journal_upkeep.CONTROL_ROWS, journal_upkeep.ROWS = 40, 100  # snapshots, and logs that are rolled, all the time
folder, round = sys.argv[1], int(sys.argv[2])
hub = td.Hub(folder, options=JournalOptions(roll_records=150, convert=False))
out = threading.Lock()
def say(*what):
    with out:
        os.write(1, (json.dumps(what) + "\\n").encode())
RULE = "PolicyStatement { On(Forward, Publication) { If {} Then { RemoveAttributes([secret%d]) } } }"
def work(thread):
    name = f"c{thread}"
    client, sub = hub.client(name), subs[thread]
    for note in sub.take():
        say("again", name, str(note.event.id))
    sub.redeliver()
    number = 0
    while True:
        number += 1
        receipt = client.publish({"n": number, "to": (thread + 1) % 3, "round": round, "secret": 1})
        say("publish", name, str(receipt.event.id), receipt.offset, receipt.event.sequence)
        if number % 3 == 0:
            client.set_context(n=number, round=round)
            say("context", name, number, round)
        if number % 5 == 0:
            made = client.subscribe(f"n = {number}", id=f"{name}-{round}-{number}")
            say("subscribe", name, made.id, str(made.subscription.content))
            if number % 10 == 0:
                client.set_policy(made, RULE % number)
                say("policy", made.id, str(td.Policy.parse(RULE % number)))
            if number % 15 == 0:
                say("unsubscribing", name, made.id)
                client.unsubscribe(made)
                say("unsubscribed", name, made.id)
        if number % 4 == 0:
            for note in sub.take(3):
                say("acknowledging", name, str(note.event.id))
                sub.acknowledge(note)
                say("acknowledged", name, str(note.event.id))
subs = [hub.client(f"c{thread}").subscribe(f"to = {thread}", durable="all", limit=20) for thread in range(3)]
for thread in range(3):
    threading.Thread(target=work, args=(thread,), daemon=True).start()
say("ready")
threading.Event().wait()
"""


class Account:
    """What the workers were told is safe."""

    def __init__(self) -> None:
        self.published: dict[str, tuple[str, int, int]] = {}  # event -> publisher, offset, sequence
        self.contexts: dict[str, list[dict[str, int]]] = {}  # all that were acknowledged, in order
        self.subscriptions: dict[str, str] = {}
        self.policies: dict[str, str] = {}
        self.leaving: set[str] = set()
        self.acknowledging: set[str] = set()
        self.acknowledged: set[str] = set()

    def hear(self, line: list[Any]) -> None:
        match line:
            case ["publish", name, event, offset, sequence]:
                self.published[event] = name, offset, sequence
            case ["context", name, number, round]:
                self.contexts.setdefault(name, []).append({"n": number, "round": round})
            case ["subscribe", _, id, content]:
                self.subscriptions[id] = content
            case ["policy", id, policy]:
                self.policies[id] = policy
            case ["unsubscribing", _, id]:
                self.leaving.add(id)
            case ["unsubscribed", _, id]:
                del self.subscriptions[id]
            case ["acknowledging", _, event]:
                assert event not in self.acknowledged
                self.acknowledging.add(event)
            case ["acknowledged", _, event]:
                self.acknowledged.add(event)
            case ["again", _, event]:
                assert event not in self.acknowledged

    def check(self, hub: Hub) -> None:
        journal_store = hub.processor.journal_store
        assert journal_store is not None
        journaled = {str(event.id): (offset, event) for offset, event in journal_store.history.events(None)}
        for event, (publisher, offset, sequence) in self.published.items():
            found = journaled[event]
            assert (found[0], found[1].publisher, found[1].sequence) == (offset, publisher, sequence)
        sequences: dict[str, list[int]] = {}
        for _, one in journaled.values():
            sequences.setdefault(one.publisher, []).append(one.sequence)
        assert all(counted == list(range(1, len(counted) + 1)) for counted in sequences.values())
        tables = hub.tables()
        held = {one.id: one for one in tables.subscriptions}
        for id, content in self.subscriptions.items():  # noqa: A001
            assert id in self.leaving or str(held[id].content) == content
            assert id in self.leaving or id not in self.policies or tables.policies[id] == self.policies[id]
        for id in self.leaving - self.subscriptions.keys():  # noqa: A001
            assert id not in held
        for name, contexts in self.contexts.items():
            # The last that was acknowledged, or the one after it, of which nobody was told in time.
            now, last = hub.client(name).context, contexts[-1]
            assert now == last or now not in contexts
        self.check_backlogs(hub, {event: found[1].attributes["to"] for event, found in journaled.items()})

    def check_backlogs(self, hub: Hub, addressed: dict[str, Any]) -> None:
        for thread in range(3):
            client = hub.client(f"c{thread}")
            (sub,) = [one for one in client.subscriptions() if one.durable == "all"]
            seen: list[str] = []
            sub.inbox.limit = 1_000_000
            while notes := sub.take():
                seen += [str(note.event.id) for note in notes]
            sub.inbox.limit = 20
            due = {event for event, to in addressed.items() if to == thread}
            assert len(set(seen)) == len(seen)
            assert not set(seen) & self.acknowledged
            assert due - self.acknowledging <= set(seen) <= due
            assert sub.waiting == 0
            sub.redeliver()


def test_killed_at_any_moment(tmp_path: Path) -> None:
    draw = random.Random(11)
    account = Account()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for round in range(ROUNDS):  # noqa: A001
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), str(round)], stdout=subprocess.PIPE, env=environment
        )
        assert process.stdout is not None
        said, lines = b"", draw.randrange(150, 1_500)
        while said.count(b"\n") < lines:
            chunk = os.read(process.stdout.fileno(), 65_536)
            assert chunk, "the worker ended by itself"
            said += chunk
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read()
        process.wait()
        process.stdout.close()
        for line in said.splitlines(keepends=True):
            if line.endswith(b"\n"):
                account.hear(json.loads(line))
        with Hub(tmp_path) as hub:
            assert not [note for note in hub.notes if not any(text in note for text in EXPECTED_NOTES)]
            account.check(hub)
            if round % 2:
                crashed = hub.processor.journal_store
                assert crashed is not None
                crashed.upkeep.rows_since_snapshot = 0  # closes without a snapshot: the next one reads the rows
    assert len(account.published) > 300
    assert account.acknowledged
    assert account.subscriptions
    assert account.policies
