"""What is sent between programs and stored in files: frames, rows, snapshots, documents, metrics, file names."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from lxml import etree
from prometheus_client.parser import text_string_to_metric_families

from tests.compatibility.names import samples, source, stored
from tests.compatibility.names.interface import constructor
from tests.compatibility.names.layouts import layout
from tidings.broker.config.tables import JSON, LEVELS, TEXT
from tidings.broker.logs import LogLine
from tidings.broker.metrics import Gauges, Metrics, SecurityGauges
from tidings.broker.ops.prometheus import PrometheusPage
from tidings.engine import journal_codec, meta_events
from tidings.engine.effects import Reject
from tidings.engine.message import Refusal
from tidings.journal import disk, lock, log, manifest, segment, snapshot
from tidings.journal.record import LOST
from tidings.model import errors
from tidings.model.errors import RefusedError, SecurityError, TidingsError
from tidings.model.notification import Trace
from tidings.policy import elements, registry
from tidings.policy.ast import Attach, Matching, MessageType, Point, RuleOperation
from tidings.policy.call_checks import VARIABLES
from tidings.policy.evaluation import rendering
from tidings.policy.evaluation.evaluation import OutgoingPublication
from tidings.policy.policy import Policy
from tidings.protocol import handshake
from tidings.protocol.frames import FrameKind
from tidings.protocol.publications import Safety
from tidings.security import encoding, gate, topic_record, trust_group
from tidings.security.ca import certificates, revocation
from tidings.security.ca import identity as security_identity
from tidings.security.rpc import kmc_messages, messages, tdn_messages
from tidings.security.sealing import envelope
from tidings.security.tdn import discovery_records
from tidings.security.tokens import notices, token
from tidings.services import authority_store, kmc_store, tdn

_PURPOSES = (
    *(
        discovery_records.PURPOSE,
        certificates.PURPOSE,
        notices.PURPOSE,
        topic_record.PURPOSE,
        revocation.PURPOSE,
        token.PURPOSE,
    ),
    *(
        trust_group.PURPOSE,
        trust_group.REQUEST,
        trust_group.INVITATION,
        messages.QUESTION,
        messages.ANSWER,
        messages.SERVICE,
    ),
    *(envelope.EVENT, envelope.BATCH, envelope.ADDITION, kmc_messages._PROOF, gate.PROOF),
)
# Every element of the policy language and of its XML notation is in it.
POLICY = """
PolicyStatement {
  On(Forward, Publication) {
    @matching: After
    @broker: Egress
    @attach: IfYield
    @yield_attach: True
    If {AuthenticateSender(police) && (BrokerLoadIndex() > 0.5 || MessageSizeIndex() in [0, 1.5])}
    Then {RemoveAttributes(a, b), Publish("[class,Report],[from,$Sender],[n,3],[share,0.5],[late,true]")}
    OnException {
      If {} Then {Log($Exception)}
    }
  }
  On(Forward, Subscription) {
    @matching: Before
    If {(AuthenticateSender(police) && BrokerLoadIndex() > 0.5) || MessageSizeIndex() > 0.5} Then {BlockMessage()}
  }
}
"""


def wire_lines() -> Iterator[str]:
    yield f"protocol magic = {handshake.MAGIC!r}"
    yield f"protocol version = {handshake.VERSION}"
    yield from (f"frame {number}" for number in sorted({int(one) for one in FrameKind} | stored.FRAMES.keys()))
    for number, (name, kind) in stored.FRAMES.items():
        yield from layout(f"frame {number} {name}", kind)
    yield from (f"frame 10 publish[3] {one.value} = {one.name.lower()}" for one in Safety)
    for question, kind in stored.QUESTIONS.items():
        yield f"question {question}"
        yield from () if kind is None else layout(f"question {question}, about", kind)


def journal_lines() -> Iterator[str]:
    for label, kind in {**stored.JOURNAL, **stored.JOURNAL_JSON}.items():
        yield from layout(label, kind)
    yield from (f"row {kind}" for kind in {*journal_codec.READERS, *journal_codec.ASIDE, LOST})
    for label, row in samples.rows().items():
        names = [name for name in row.__struct_fields__ if getattr(row, name) is not None]
        yield f"{label}: {', '.join(names)}"
        if label != "row set_context":  # its body is the context itself
            yield from (f"{label}, body.{name}" for name in row.content())
    yield from (f"segment column {one.name} {one.type}{'' if one.nullable else ', required'}" for one in segment.SCHEMA)


def snapshot_lines() -> Iterator[str]:
    for label, kind in stored.SNAPSHOT.items():
        yield from layout(label, kind)


def security_lines() -> Iterator[str]:
    for label, kind in stored.SECURITY.items():
        yield from layout(label, kind)
    asked = kmc_messages
    for kind in (
        *(asked.KEYS, asked.TOPIC, asked.GRANT, asked.REVOKE, asked.ROTATE, asked.ENROL, asked.CHALLENGE),
        *(asked.RELEASE, asked.REWRAP, asked.LIST),
    ):
        yield f"centre question {kind}"
    nodes = tdn_messages
    for kind in (nodes.FIND, nodes.ADVERTISE, nodes.WITHDRAW, nodes.REPLICATE):
        yield f"discovery question {kind}"
    yield f"discovery topic {nodes.TOPIC}"
    yield f"discovery attributes {nodes.ASK} = {nodes.HELLO} | {nodes.NEWS}, {nodes.REPLY_TO}"
    yield f"exchange attribute {messages.SERVICE_TOPIC}"
    told = notices
    yield f"proclaimed attribute {told.KIND} = {told.REVOCATIONS} | {told.NOTICE} | {told.RECORD}, {told.TOPIC}"
    yield f"signed {encoding.signing_input('PURPOSE', b'BODY')!r}"
    yield from (f"purpose {one!r}" for one in _PURPOSES)


def error_lines() -> Iterator[str]:
    """The classes whose names a broker sends, and the words for steps and checks that stand beside them."""
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, TidingsError):
            above = ", ".join(one.__name__ for one in kind.__mro__[1:-2])
            yield f"error {name}({constructor(kind)}) is {above}"
    for step in source.first_arguments({RefusedError.__name__, Reject.__name__, Refusal.__name__}):
        yield f"step {step}"
    for check in source.first_arguments({SecurityError.__name__}):
        yield f"check {check}"


def meta_event_lines() -> Iterator[str]:
    made = [
        meta_events.conflict(*"abcdef"),
        meta_events.exception(*"abcd"),
        meta_events.lost("a", "b", "c", 1),
        meta_events.expelled(*"abcd"),
    ]
    for attributes in made:
        yield from (f"{attributes['class']}.{name}" for name in attributes)
    yield from (f"{name} is reserved" for name in meta_events.RESERVED)
    yield from (f"{name} is made by brokers alone" for name in meta_events.BROKERS_OWN)


def reserved_lines() -> Iterator[str]:
    """Attributes, columns, notes in rows and prefixes of ids: every name with `$` in front that the source has."""
    yield from source.reserved_names()


def policy_lines() -> Iterator[str]:
    for name in registry.names():
        element = registry.find(name)
        if element is not None:
            yield from _element_lines(element)
    for label, words in {
        "operation": RuleOperation,
        "message": MessageType,
        "matching": Matching,
        "broker": Point,
        "attach": Attach,
    }.items():
        yield from (f"{label} {one.value}" for one in words)
    yield from (f"keyword {word}" for word in registry.KEYWORDS)
    yield from (f"variable ${name}" for name in VARIABLES)
    yield from _xml_lines("policy document", Policy.parse(POLICY).to_xml())
    yield from _conversion_lines()


def _element_lines(element: elements.Element) -> Iterator[str]:
    called = f"{element.role.value} {element.name}"
    for place, one in enumerate(element.parameters):
        more = "" if one.default is None else f" = {one.default.value!r}" if hasattr(one.default, "value") else " = ..."
        more += " (optional)" if one.optional else ""
        more += " (several)" if one.many else ""
        more += f" of {' | '.join(one.choices)}" if one.choices else ""
        yield f"{called} parameter {place} {one.kind.value}{more}"
    yield f"{called} gives {element.gives.value}" if element.gives else f"{called} {element.effect}"
    yield f"{called} on {_words(element.operations)}, {_words(element.messages)}, {_words(element.matching)}"


def _words(words: Iterable[str]) -> str:
    return " | ".join(sorted(words))


def _xml_lines(label: str, text: str | bytes) -> Iterator[str]:
    nodes: Iterable[Any] = etree.fromstring(text).iter()
    for node in nodes:
        yield f"{label} <{node.tag}>"
        yield from (f"{label} <{node.tag} {name}>" for name in node.attrib)


def _conversion_lines() -> Iterator[str]:
    """The documents that the conversions of a policy write into payloads."""
    trace = (Trace("b1", "host-1", 0.5, 12),)
    shaped = OutgoingPublication(
        {"a": 1, "b": 1.5, "c": True, "d": "text"}, b"\xff", publisher="p", subject="s", trace=trace
    )
    yield from _xml_lines("ToXML", rendering.xml(shaped))
    yield from (f"ToXML type {node.get('type')}" for node in etree.fromstring(rendering.xml(shaped)).iter("attribute"))
    document = msgspec.json.decode(rendering.json(shaped))
    document["attributes"] = None  # their names are data
    yield from (f"ToJSON {path}" for path in paths_of(document))


def paths_of(value: Any, path: str = "") -> Iterator[str]:
    """The names in a decoded document, below those that hold them."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield f"{path}.{name}"
            yield from paths_of(one, f"{path}.{name}")
    elif isinstance(value, list):
        for one in value:
            yield from paths_of(one, f"{path}[*]")


def metric_lines() -> Iterator[str]:
    metrics = Metrics()
    metrics.operations.refused["admit"] = 1
    gauges = Gauges(certificate_expires=1.0, security=SecurityGauges(refused={"token": 1}))
    page, _ = PrometheusPage("b1", metrics, lambda: gauges).page()
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            if sample.name.startswith("tidings"):  # the others are those of the library
                labels = ", ".join(sorted(sample.labels))
                yield f"{sample.name}{{{labels}}} {family.type}"
                if labels in ("outcome", "direction"):
                    yield from (f"{sample.name} {name} = {value}" for name, value in sample.labels.items())


def log_lines() -> Iterator[str]:
    """What stands around every message of a broker's log; the messages themselves are texts for people."""
    told = msgspec.json.decode(LogLine(0.0, "info", "message", {}).as_json("b1"))
    yield from (f"json .{name}" for name in told)
    yield f"text {LogLine(0.0, 'info', 'message', {'field': 1}).as_text('b1')}"
    yield from (f"format {name}" for name in (TEXT, JSON))
    yield from (f"level {name}" for name in LEVELS)


def file_lines() -> Iterator[str]:
    """Files and folders that later versions must find."""
    yield f"journal: {manifest.FILE} format {manifest.FORMAT}"
    yield f"journal: {lock.FILE}"
    yield f"journal: *{log.SUFFIX} {log.MAGIC.decode()} {log.VERSION}"
    yield f"journal: *{segment.SUFFIX}"
    yield f"journal: *{snapshot.SUFFIX}"
    yield f"unfinished: {disk.temporary_of(Path('NAME')).name}"
    authority = authority_store
    for name in (authority.CERTIFICATE, authority.KEY, authority.LEDGER, authority.PUBLISHED):
        yield f"authority: {name}"
    for name in (kmc_store.IDENTITY, kmc_store.LOCK, kmc_store.STATE, kmc_store.SERVICE):
        yield f"centre: {name}"
    for name in (tdn.LEDGER, tdn.REVOCATIONS):
        yield f"discovery node: {name}"
    for name in (security_identity.AUTHORITY, security_identity.CERTIFICATE, security_identity.KEY):
        yield f"identity: {name}"
