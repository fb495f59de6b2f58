"""Every struct that is sent or stored: where its bytes stand, and which struct decodes them.

The keys are texts of this file, not names of classes; the numbers in them are those of the protocol.
"""

from typing import Any

from tidings.broker import journal_extension
from tidings.broker.sessions import queries
from tidings.engine.headers import ForwardingHeader
from tidings.engine.overlay.redelivery import RedeliveryState
from tidings.engine.security import topic_gossip
from tidings.engine.state import snapshot
from tidings.engine.state.static_projections import StaticProjections
from tidings.journal import Operation as Row
from tidings.journal.segment import SegmentEnds
from tidings.model import schema
from tidings.model.notification import Trace
from tidings.protocol import answers, handshake, notifications, operations, publications, requests
from tidings.runtime.delivery_record import NotificationChanges, PendingDecisionRecord
from tidings.runtime.journal_upkeep import HubSnapshot
from tidings.security import encoding, topic_record, trust_group, vault
from tidings.security.ca import revocation
from tidings.security.kmc import state
from tidings.security.rpc import kmc_messages, messages, tdn_messages
from tidings.security.sealing import envelope, keys
from tidings.security.tdn import discovery_records
from tidings.security.tokens import notices, token
from tidings.services import authority_store
from tidings.spark.pipeline import ledger
from tidings.spark.shards import shard_state
from tidings.spark.sinks import broker_sink

FRAMES: dict[int, tuple[str, Any]] = {
    1: ("hello", handshake.Hello),
    2: ("welcome", handshake.Welcome),
    3: ("ping", handshake.Ping),
    4: ("pong", handshake.Ping),
    5: ("bye", handshake.Bye),
    6: ("bound", handshake.SubjectBound),
    7: ("challenge", handshake.Challenge),
    8: ("proof", handshake.Proof),
    10: ("publish", publications.WirePublication),
    11: ("subscribe", requests.SubscribeRequest),
    12: ("unsubscribe", requests.UnsubscribeRequest),
    13: ("advertise", requests.AdvertiseRequest),
    14: ("unadvertise", requests.UnadvertiseRequest),
    15: ("set_context", requests.SetContextRequest),
    16: ("entrust", requests.DelegateContextRequest),
    17: ("set_policy", requests.SetPolicyRequest),
    18: ("define", requests.DefineSchemaRequest),
    19: ("acknowledge", requests.AcknowledgeRequest),
    20: ("ask", requests.QueryRequest),
    30: ("done", answers.RequestDone),
    31: ("refused", answers.RequestRefused),
    32: ("receipts", answers.PublicationReceipts),
    33: ("notification", notifications.WireNotification),
    34: ("lost", answers.NotificationsLost),
    35: ("context", answers.ContextChanged),
    36: ("answer", answers.QueryAnswer),
    40: ("operation", operations._Row | operations._TransferBacklog | operations._Signal),
    41: ("pass", operations._ForwardedEvent),
}
QUESTIONS: dict[str, Any] = {
    "explain": queries.ExplainQuery,
    "forget": queries.ForgetBrokerQuery,
    "replay": queries.ReplayQuery,
    "schema": queries.SubjectQuery,
    "security": queries.SecureTopicQuery,
    "stats": None,
    "status": None,
    "tables": None,
    "topics": None,
}
JOURNAL: dict[str, Any] = {"record": Row}
JOURNAL_JSON: dict[str, Any] = {
    "row debts, body": RedeliveryState,
    "row publish, body.journey": ForwardingHeader,
    "row, body.$due[*]": NotificationChanges,
    "row, body.$owed[*]": PendingDecisionRecord,
    "row subscribe, body.structure": schema._Structure,
    "segment, metadata tidings.journal": SegmentEnds,
}
SNAPSHOT: dict[str, Any] = {
    "snapshot": HubSnapshot,
    "snapshot.engine": snapshot.SavedState,
    "snapshot.engine.assurance": topic_gossip._State,
    "snapshot.more": journal_extension._BrokerSnapshot,
}
SECURITY: dict[str, Any] = {
    "addition": envelope.Addition,
    "advertisement": discovery_records._Body,
    "answer": messages._Answer,
    "authority ledger": authority_store._AuthorityRecord,
    "centre answer changed": kmc_messages.ChangeResponse,
    "centre answer keys": kmc_messages.KeyResponse,
    "centre answer list": kmc_messages.ListResponse,
    "centre answer rewrap": kmc_messages.RewrapResponse,
    "centre question challenge": kmc_messages.AnswerChallengeRequest,
    "centre question enrol": kmc_messages.EnrolRequest,
    "centre question grant": kmc_messages.GrantRequest,
    "centre question keys": kmc_messages.KeyRequest,
    "centre question release": kmc_messages.ReleaseRequest,
    "centre question revoke": kmc_messages.RevokeRequest,
    "centre question rewrap": kmc_messages.RewrapRequest,
    "centre question rotate": kmc_messages.RotateRequest,
    "centre question topic": kmc_messages.RegisterTopicRequest,
    "centre state": state.Change,
    "discovery answer find": tdn_messages.FindResponse,
    "discovery answer replicate": tdn_messages.ReplicateResponse,
    "discovery ledger": tdn_messages.ReplicatedRecord,
    "discovery question find": tdn_messages.FindRequest,
    "discovery question replicate": tdn_messages.ReplicateRequest,
    "epoch key": keys.EpochKey,
    "group invitation": trust_group._Invitation,
    "group request": trust_group._Request,
    "notice": notices._Outer,
    "notice, signed body": notices.Notice,
    "question": messages._Question,
    "revocations": revocation.RevocationUpdate,
    "revocations, signed head": revocation.RevocationHead,
    "seal": envelope.Seal,
    "service": messages._Service,
    "signed": encoding.SignedValue,
    "token": token._Body,
    "topic record": topic_record._Body,
    "vault lock": vault._Lock,
}
SPARK_STATE: dict[str, Any] = {"shelf cuts": StaticProjections, "version memory": shard_state._Memory}
SPARK_STATE_JSON: dict[str, Any] = {"ledger entry": ledger.LedgerEntry, "partition mark": broker_sink._Position}
TRACE = Trace  # its names are in the documents of ToXML and ToJSON
