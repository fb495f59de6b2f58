"""Writes the data of a release: `python -m tests.compatibility.write_fixtures`, in the root of the checkout, with the
version that is to be released. Later versions must open these data, and the tests beside this file check that they do.

The journal and the hub have a clock of their own and are the same every time. Brokers and the pipeline read the
system's clock, and certificates have new keys, so their data differ in times, salts and keys from one run to the next.
`release.py` says what is written; the wheel is copied there by hand, before this runs, so that it has a checksum too.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidings as td
from tests.compatibility import pipelines
from tests.compatibility.contents import (
    decide,
    epoch_keys,
    event_id,
    fetch_keys,
    hub_state,
    member_of,
    record_fields,
)
from tests.compatibility.release import PLACE, Release
from tests.journal.cases import NOW, log_of
from tidings.cli.overlay import LocalOverlay
from tidings.journal import Journal, JournalOptions, Operation, Record
from tidings.model import Event
from tidings.security import Right, Role, TopicRecord
from tidings.security.rpc import kmc_messages
from tidings.security.vault import Vault
from tidings.services.authority_store import AuthorityStore
from tidings.services.kmc_store import KmcStore
from tidings.simulation.topologies import line
from tidings.testing import VirtualClock

if TYPE_CHECKING:
    from tidings.client.sync import SyncClient

PASSPHRASE = b"correct horse"
WORK = 2**14  # of the passphrase's derivation: less than a centre takes, for tests that open one often
SECOND = 1_000_000
DAY = 86_400 * SECOND
TRIM = "PolicyStatement { On(Forward, Publication) { If {} Then { RemoveAttributes([plate]) } } }"
PERSIST = "PolicyStatement { On(Insert, Publication) { If {} Then { Persist(audit) } } }"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the data of this version, for compatibility tests.")
    parser.add_argument("kinds", nargs="*", help=f"which kinds, of {', '.join(WRITERS)}; all of them by default")
    parser.add_argument("--replace", action="store_true", help="write kinds anew that the release has already")
    given = parser.parse_args()
    release = Release.of(td.__version__)
    for kind in given.kinds or WRITERS:
        if (release.folder / f"{kind}.json").exists() and not given.replace:
            parser.error(f"{release.folder} has {kind} already; what was released never changes (--replace)")
        with tempfile.TemporaryDirectory() as folder:
            release.pack(kind, Path(folder), WRITERS[kind](Path(folder)))
    release.write_checksums()


# The journal: two segments, a log and a snapshot


def write_journal(folder: Path) -> dict[str, Any]:
    operations = [
        Operation.control("set_context", client="car-1", body={"context": {"x": 1.5, "zone": "a"}}),
        Operation.control("subscribe", client="car-1", id="s1", body={"content": "n > 1", "durable": None}),
        *map(_publication, range(3)),
        Operation.control("sealed", client="kmc-1", payload=bytes(range(256)), token=b"token", signature=b"signature"),
        *map(_publication, range(3, 6)),
        Operation.publication(_event(6), "passed", {"due": ["s1"]}),
        _publication(7),
    ]
    with Journal.open(folder, name="journal-1", salt=b"salt", options=JournalOptions(roll_records=4)) as journal:
        for number, operation in enumerate(operations):
            journal.commit([operation], NOW + number * SECOND)
            if number == 5:
                journal.write_snapshot(6, b"state after six records")
    records = [Record(number, NOW + number * SECOND, operation) for number, operation in enumerate(operations)]
    return {
        "name": "journal-1",
        "records": list(map(record_fields, records)),
        "snapshot": {"offset": 6, "data": "state after six records"},
        "segments": 2,
    }


def _publication(number: int) -> Operation:
    return Operation.publication(_event(number))


def _event(number: int) -> Event:
    """Events with every kind of value, and every field somewhere."""
    values = {"n": number, "f": number + 0.5, "whole": float(number), "b": number % 2 == 0, "s": f"ä\0☃{number}"}
    more: dict[str, Any] = {}
    if number % 3 == 1:
        more = {"payload": bytes(range(number)), "context": {"x": 2.0}, "subscribers": td.ContextFilter.parse("x > 1")}
    elif number % 3 == 2:
        more = {"subject": "traffic", "policy": TRIM, "token": b"token", "signature": b"signature"}
    return Event.of(values, id=event_id(number), publisher="cam-1", timestamp=NOW + number, sequence=number, **more)


# The hub: once after it was closed, and once as a crash leaves it, in the middle of its work


def write_hub(folder: Path) -> dict[str, Any]:
    clock = VirtualClock()
    hub = td.Hub(folder / "closed", name="hub-1", clock=clock, govern=["city"])
    car, bus, camera, city = (hub.client(name) for name in ("car-1", "bus-1", "cam-1", "city"))
    hub.schema(td.Schema("traffic", {"n": "int", "msg": "str"}).extend({"plate": "str"}))
    for client, x in ((car, 10.0), (bus, 20.0), (camera, 12.5)):
        client.set_context(x=x, zone="a")
    car.let_set_context("bus-1")
    camera.advertise("n >= 0", id="offer", policy=TRIM)
    city.advertise("n >= 100", id="audit", policy=PERSIST)
    near = car.subscribe("n >= 1", "x between this.x - 5 and this.x + 5", durable="near", id="near")
    every = bus.subscribe("n >= 0 or msg = 'jam'", durable="every", id="every")
    bus.subscribe("n >= 0", id="brief")
    hub.set_policy("brief", TRIM)
    _publish(camera, clock, 0, 4)
    every.acknowledge(*every.take(2))
    hub.snapshot()
    camera.publish({"n": 4, "msg": "accident", "plate": "b 1"}, subject="traffic", id=event_id(4))
    camera.publish({"msg": "jam"}, "zone = 'a'", b"a picture", id=event_id(5))
    bus.set_context(of="car-1", x=100.0, zone="b")
    _publish(camera, clock, 6, 8)
    near.acknowledge(*near.take(1))
    city.publish({"n": 100}, id=event_id(100))
    bus.set_policy("every", TRIM)
    state = hub_state(hub)
    shutil.copytree(folder / "closed", folder / "crashed")
    hub.close()
    return state


def _publish(client: "td.hub.HubClient", clock: VirtualClock, first: int, last: int) -> None:
    for number in range(first, last):
        clock.time += SECOND
        client.publish({"n": number, "plate": f"a {number}"}, id=event_id(number))


# Two brokers with a link: once after both were stopped, and once after both were killed


def write_brokers(folder: Path) -> dict[str, Any]:
    for end in ("stopped", "killed"):
        overlay = LocalOverlay(line(2), folder / end)
        overlay.start()
        try:
            _use_brokers(overlay, is_killed=end == "killed")
        finally:
            overlay.stop()
        for path in (*(folder / end).glob("*.log"), *(folder / end).glob("*.toml"), folder / end / "lock"):
            path.unlink()  # the data are the journals
    _tear_last_record(folder / "killed" / "b1-journal")
    return {
        "subscriptions": {
            "car-1.durable.near": ["car-1", "n >= 1", "x BETWEEN this.x - 5 AND this.x + 5"],
            "bus-1.durable.every": ["bus-1", "n >= 0", None],
        },
        "contexts": {"car-1": {"x": 10.0}},
        "policies": {"bus-1.durable.every": str(td.Policy.parse(TRIM))},
        "schemas": {"traffic": [{"n": "int"}]},
        "backlogs": {
            "stopped": {"near": list(map(_broker_event, (3, 5, 7))), "every": list(map(_trimmed, range(2, 8)))},
            "killed": {"near": list(map(_broker_event, (3, 5, 7, 9))), "every": list(map(_trimmed, (*range(2, 8), 9)))},
        },
    }


def _use_brokers(overlay: LocalOverlay, *, is_killed: bool) -> None:
    """Two clients have durable subscriptions at b1, and leave; one client publishes at each broker, in turn.

    What cam-1 publishes at b1 has an even number, what cam-2 publishes at b2 an odd one. Where the brokers are killed,
    b2 accepts the last event while b1 is gone already: b2 owes it to b1.
    """
    first, second = overlay.addresses["b1"], overlay.addresses["b2"]
    with td.connect_sync(first, name="cam-1") as here, td.connect_sync(second, name="cam-2") as there:
        here.schema(td.Schema("traffic", {"n": "int"}))
        here.advertise("n >= 0", id="offer-1")
        there.advertise("n >= 0", ("x",), id="offer-2")
        there.set_context(x=12.5)
        with td.connect_sync(first, name="car-1") as car, td.connect_sync(first, name="bus-1") as bus:
            car.set_context(x=10.0)
            near = car.subscribe("n >= 1", "x between this.x - 5 and this.x + 5", durable="near")
            every = bus.subscribe("n >= 0", policy=TRIM, durable="every")
            overlay.settle()
            for number in range(4):
                _publish_at(here, there, number)
            near.acknowledge(*near.take(1, timeout=60))
            every.acknowledge(*every.take(2, timeout=60))
        for number in range(4, 8):
            _publish_at(here, there, number)
        overlay.settle()
        if is_killed:
            overlay.children["b1"].kill()
            _publish_at(here, there, 9, "journaled")
            overlay.children["b2"].kill()


def _publish_at(here: "SyncClient", there: "SyncClient", number: int, safe: str = "settled") -> None:
    client = there if number % 2 else here
    client.publish({"n": number, "plate": f"a {number}"}, id=event_id(number), safe=safe)


def _broker_event(number: int) -> dict[str, Any]:
    """What a client is given of the event of that number."""
    publisher, context = ("cam-2", {"x": 12.5}) if number % 2 else ("cam-1", {})
    return {
        "id": str(event_id(number)),
        "publisher": publisher,
        "sequence": number // 2 + 1,
        "payload": None,
        "attributes": {"n": number, "plate": f"a {number}"},
        "context": context,
        "subject": None,
    }


def _trimmed(number: int) -> dict[str, Any]:
    return {**_broker_event(number), "attributes": {"n": number}}


def _tear_last_record(journal: Path) -> None:
    """Half of a record at the end of the log, as a machine leaves it that loses power in the middle of a write."""
    with log_of(journal).open("r+b") as log:
        start = log.read()
        record = start[start.rindex(b"TdnR") :]
        log.write(record[: len(record) // 2])


# Security: an authority, identities, a key management centre, and a journal with a sealed event


def write_security(folder: Path) -> dict[str, Any]:
    """Everything happens at the time `NOW`, and is checked at that time: no certificate is too old for a test."""
    with AuthorityStore.create(folder / "ca", "example", NOW, PASSPHRASE) as authority:
        roles = {"kmc-1": Role.KMC, "b1": Role.BROKER, "coach": Role.ENTITY, "player": Role.ENTITY, "fan": Role.ENTITY}
        identities = {name: authority.issue(name, role, NOW) for name, role in roles.items()}
        authority.revoke("fan", NOW, reason="lost the key")
        revocations = authority.publish(NOW)
        issued = {one.name: [one.role.value, one.serial.hex()] for one in authority.authority.issued}
    for name in ("coach", "player"):
        identities[name].save(folder / name)
    kmc, coach = identities["kmc-1"], identities["coach"]
    record = TopicRecord.make(coach, id=b"Sports=NBA......", template="Sports=NBA", kmc=kmc.certificate)
    (folder / "nba.record").write_bytes(record.data)
    with KmcStore.create(folder / "kmc", kmc, Vault.make(PASSPHRASE, None, work=WORK)) as centre:
        centre.commit(centre.centre.revocations(revocations, NOW), NOW)
        decide(centre, coach, kmc_messages.TOPIC, kmc_messages.RegisterTopicRequest(record.data, lifetime=3_600))
        rights = int(Right.of(("publish", "subscribe")))
        for name in ("coach", "player"):
            decide(
                centre, coach, kmc_messages.GRANT, kmc_messages.GrantRequest(record.id, name, rights, NOW + 30 * DAY)
            )
        member = member_of(identities["coach"], record, revocations)
        fetch_keys(centre, member, record)
        event = Event.of(
            {"Sports": "NBA", "n": 1},
            id=event_id(1),
            publisher="coach",
            timestamp=NOW,
            sequence=1,
            payload=b"we play zone",
        )
        sealed = member.seal(event, NOW)
        decide(centre, coach, kmc_messages.ROTATE, kmc_messages.RotateRequest(record.id))
        epochs = epoch_keys(centre)
    with Journal.open(folder / "journal", name="sealed", salt=b"salt") as journal:
        journal.commit([Operation.publication(sealed)], NOW)
    return {
        "issued": issued,
        "revoked": {"fan": "lost the key"},
        "epochs": epochs,
        "payload": "we play zone",
    }


# A pipeline over folders of files, with two shards, and one over a hub's journal, both after two batches


FILES_PIPELINE = """\
name = "files"
checkpoint = "checkpoint"
shards = 2

[events]
path = "events"

[subscriptions]
path = "subscriptions"

[contexts]
path = "contexts"

[[sinks]]
format = "parquet"
path = "out/notifications"

[[sinks]]
format = "parquet"
what = "rejected"
path = "out/rejected"

[[sinks]]
format = "hub"
path = "out/hub"
"""
JOURNAL_PIPELINE = """\
name = "journal"
checkpoint = "checkpoint"

[journal]
path = "hub"

[engine]
name = "hub-1"

[[sinks]]
format = "parquet"
path = "out/notifications"
"""
FILES: list[dict[str, list[dict[str, Any]]]] = [
    {
        "subscriptions/1.json": [
            {
                "id": "near",
                "subscriber": "car-1",
                "content": "n >= 2",
                "publishers": "x between this.x - 5 and this.x + 5",
            },
            {"id": "every", "subscriber": "bus-1", "content": "n >= 1"},
        ],
        "contexts/1.json": [
            {"client": "cam-1", "timestamp": "2026-03-01T08:00:00Z", "context": {"x": 12.0}},
            {"client": "cam-2", "timestamp": "2026-03-01T08:00:00Z", "context": {"x": 80.0}},
            {"client": "car-1", "timestamp": "2026-03-01T08:00:00Z", "context": {"x": 10.0}},
        ],
        "events/1.json": [
            {"id": "e1", "timestamp": "2026-03-01T08:00:10Z", "publisher": "cam-1", "attributes": {"n": 3, "f": 1.0}},
            {"id": "e2", "timestamp": "2026-03-01T08:00:20Z", "publisher": "cam-2", "attributes": {"n": 2}},
            {"id": "e3", "timestamp": "soon", "publisher": "cam-2", "attributes": {"n": 1}},
        ],
    },
    {
        "subscriptions/2.json": [
            {"id": "jams", "subscriber": "car-2", "content": "msg = 'jam'", "since": "2026-03-01T08:01:00Z"},
            {"id": "every", "subscriber": "bus-1", "until": "2026-03-01T08:01:15Z"},
        ],
        "contexts/2.json": [{"client": "car-1", "timestamp": "2026-03-01T08:01:00Z", "context": {"x": 78.0}}],
        "events/2.json": [
            {"id": "e4", "timestamp": "2026-03-01T08:01:10Z", "publisher": "cam-2", "attributes": {"n": 4}},
            {
                "id": "e5",
                "timestamp": "2026-03-01T08:01:20Z",
                "publisher": "cam-1",
                "attributes": {"msg": "jam", "n": 5},
            },
        ],
    },
    {
        "contexts/3.json": [{"client": "cam-1", "timestamp": "2026-03-01T08:02:00Z", "context": {"x": 79.0}}],
        "events/3.json": [
            {"id": "e6", "timestamp": "2026-03-01T08:02:10Z", "publisher": "cam-1", "attributes": {"n": 6}},
            {
                "id": "e7",
                "timestamp": "2026-03-01T08:02:20Z",
                "publisher": "cam-2",
                "attributes": {"msg": "jam", "n": 1},
            },
        ],
    },
]
FILES_NOTIFICATIONS = [
    ["0", "e1", "every", '{"f":1.0,"n":3}'],
    ["0", "e1", "near", '{"f":1.0,"n":3}'],
    ["0", "e2", "every", '{"n":2}'],
    ["1", "e4", "every", '{"n":4}'],
    ["1", "e4", "near", '{"n":4}'],
    ["1", "e5", "jams", '{"msg":"jam","n":5}'],
]
FILES_FURTHER = [["2", "e6", "near", '{"n":6}'], ["2", "e7", "jams", '{"msg":"jam","n":1}']]


def write_pipelines(folder: Path) -> dict[str, Any]:
    from tidings.spark import session

    files, journal = folder / "files", folder / "journal"
    files.mkdir()
    (files / "pipeline.toml").write_text(FILES_PIPELINE)
    _fill_hub(journal / "hub")
    (journal / "pipeline.toml").write_text(JOURNAL_PIPELINE)
    spark = session("tidings-fixtures", "local[2]", **{"spark.sql.shuffle.partitions": 2})
    for batch in (0, 1):
        pipelines.put_files(files, _lines(FILES[batch]))
        pipelines.run(spark, files)
        pipelines.publish(journal / "hub", {str(event_id(batch)): {"n": batch, "plate": "a"}})
        pipelines.run(spark, journal)
    spark.stop()
    _hide_place(folder)
    return _pipelines_contents()


def _pipelines_contents() -> dict[str, Any]:
    """What both pipelines have given after two batches, what a third one reads, and what it must give."""
    return {
        "files": {
            "notifications": FILES_NOTIFICATIONS,
            "rejected": [["e3", "admit"]],
            "published": sorted(_published(*note) for note in FILES_NOTIFICATIONS),
            "further_input": _lines(FILES[2]),
            "further_notifications": FILES_FURTHER,
            "further_published": sorted(_published(*note) for note in FILES_FURTHER),
        },
        "journal": {
            "notifications": [[str(batch), str(event_id(batch)), "every", f'{{"n":{batch}}}'] for batch in (0, 1)],
            "further_input": {str(event_id(2)): {"n": 2, "plate": "a"}},
            "further_notifications": [["2", str(event_id(2)), "every", '{"n":2}']],
        },
    }


def _fill_hub(folder: Path) -> None:
    with td.Hub(folder, name="hub-1", clock=VirtualClock()) as hub:
        hub.client("cam-1").advertise("n >= 0", id="offer", policy=TRIM)
        hub.client("bus-1").subscribe("n >= 0", id="every", durable="every")


def _lines(files: Mapping[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Files of JSON lines, by their names."""
    return {name: "".join(json.dumps(row) + "\n" for row in rows) for name, rows in files.items()}


def _published(batch: str, event: str, subscription: str, attributes: str) -> list[str]:
    """What the sink publishes into a hub for a notification."""
    subscriber = {"near": "car-1", "every": "bus-1", "jams": "car-2"}[subscription]
    told = {"subscription": subscription, "subscriber": subscriber, **json.loads(attributes)}
    return ["pipeline", pipelines.by_name(json.dumps(told))]


def _hide_place(folder: Path) -> None:
    """Puts `PLACE` where Spark's checkpoint names the folder, and removes the checksums of Hadoop, which Hadoop can do
    without. Results of batches that are done name the folder, too, and are not read again."""
    for path in folder.rglob(".*.crc"):
        path.unlink()
    for path in folder.glob("*/checkpoint/spark/**/*"):
        if path.is_file():
            path.write_text(path.read_text().replace(str(folder), PLACE))


WRITERS: Mapping[str, Callable[[Path], Any]] = {
    "journal": write_journal,
    "hub": write_hub,
    "brokers": write_brokers,
    "security": write_security,
    "pipelines": write_pipelines,
}

if __name__ == "__main__":
    main()
