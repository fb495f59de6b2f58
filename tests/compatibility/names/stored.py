"""Every struct that is sent or stored: where its bytes stand, and which struct decodes them.

The keys are texts of this file, not names of classes; the numbers in them are those of the protocol.
"""

from typing import Any

from tidings.engine import archive as engine_archive
from tidings.engine import assurance
from tidings.engine.cuts import Cuts
from tidings.engine.debts import State as Debts
from tidings.engine.journey import Journey
from tidings.hub.archive import Saved
from tidings.hub.due import Changed
from tidings.hub.owing import Owed
from tidings.journal import Operation as Row
from tidings.journal.segment import SegmentEnds
from tidings.live import desk as live_desk
from tidings.live import questions
from tidings.model import schematext
from tidings.model.notification import Trace
from tidings.protocol import answers, challenges, handshake, notes, operations, publications, requests
from tidings.security import (
    advertised,
    centre_questions,
    discovery_questions,
    encoding,
    envelope,
    exchange,
    joining,
    keys,
    notices,
    records,
    revocation,
    token,
    vault,
)
from tidings.security.centre import changes as centre_changes
from tidings.services import authority_folder
from tidings.spark import broker_sink, standing
from tidings.spark.pipeline import ledger

FRAMES: dict[int, tuple[str, Any]] = {
    1: ("hello", handshake.Hello),
    2: ("welcome", handshake.Welcome),
    3: ("ping", handshake.Ping),
    4: ("pong", handshake.Ping),
    5: ("bye", handshake.Bye),
    6: ("bound", handshake.Bound),
    7: ("challenge", challenges.Challenge),
    8: ("proof", challenges.Proof),
    10: ("publish", publications.Published),
    11: ("subscribe", requests.Subscribe),
    12: ("unsubscribe", requests.Unsubscribe),
    13: ("advertise", requests.Advertise),
    14: ("unadvertise", requests.Unadvertise),
    15: ("set_context", requests.SetContext),
    16: ("entrust", requests.Entrust),
    17: ("set_policy", requests.SetPolicy),
    18: ("define", requests.Define),
    19: ("acknowledge", requests.Acknowledge),
    20: ("ask", requests.Ask),
    30: ("done", answers.Done),
    31: ("refused", answers.Refused),
    32: ("receipts", answers.Receipts),
    33: ("notification", notes.Note),
    34: ("lost", answers.Lost),
    35: ("context", answers.Context),
    36: ("answer", answers.Answer),
    40: ("operation", operations._Row | operations._Carry | operations._Signal),
    41: ("pass", operations._Passed),
}
QUESTIONS: dict[str, Any] = {
    "explain": questions.Explained,
    "forget": questions.Gone,
    "replay": questions.Replayed,
    "schema": questions.About,
    "security": questions.Secured,
    "stats": None,
    "status": None,
    "tables": None,
    "topics": None,
}
JOURNAL: dict[str, Any] = {"record": Row}
JOURNAL_JSON: dict[str, Any] = {
    "row debts, body": Debts,
    "row publish, body.journey": Journey,
    "row, body.$due[*]": Changed,
    "row, body.$owed[*]": Owed,
    "row subscribe, body.structure": schematext._Structure,
    "segment, metadata tidings.journal": SegmentEnds,
}
SNAPSHOT: dict[str, Any] = {
    "snapshot": Saved,
    "snapshot.engine": engine_archive._State,
    "snapshot.engine.assurance": assurance._State,
    "snapshot.more": live_desk._More,
}
SECURITY: dict[str, Any] = {
    "addition": envelope.Addition,
    "advertisement": advertised._Body,
    "answer": exchange._Answer,
    "authority ledger": authority_folder._Kept,
    "centre answer changed": centre_questions.Changed,
    "centre answer keys": centre_questions.GivesKeys,
    "centre answer list": centre_questions.Listed,
    "centre answer rewrap": centre_questions.Rewrapped,
    "centre question challenge": centre_questions.AnswersChallenge,
    "centre question enrol": centre_questions.Enrols,
    "centre question grant": centre_questions.Grants,
    "centre question keys": centre_questions.WantsKeys,
    "centre question release": centre_questions.Releases,
    "centre question revoke": centre_questions.Revokes,
    "centre question rewrap": centre_questions.WantsRewrapped,
    "centre question rotate": centre_questions.Rotates,
    "centre question topic": centre_questions.RegistersTopic,
    "centre state": centre_changes.Change,
    "discovery answer find": discovery_questions.Found,
    "discovery answer replicate": discovery_questions.Changes,
    "discovery ledger": discovery_questions.Kept,
    "discovery question find": discovery_questions.Finds,
    "discovery question replicate": discovery_questions.Replicates,
    "epoch key": keys.EpochKey,
    "group invitation": joining._Invitation,
    "group request": joining._Request,
    "notice": notices._Outer,
    "notice, signed body": notices.Notice,
    "question": exchange._Question,
    "revocations": revocation.Update,
    "revocations, signed head": revocation.Head,
    "seal": envelope.Seal,
    "service": exchange._Service,
    "signed": encoding.Signed,
    "token": token._Body,
    "topic record": records._Body,
    "vault lock": vault._Lock,
}
SPARK_STATE: dict[str, Any] = {"shelf cuts": Cuts, "version memory": standing._Memory}
SPARK_STATE_JSON: dict[str, Any] = {"ledger entry": ledger.Entry, "partition mark": broker_sink._Mark}
TRACE = Trace  # its names are in the documents of ToXML and ToJSON
