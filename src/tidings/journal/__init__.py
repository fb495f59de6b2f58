"""The durable log: accepted publications and control operations, checksummed, synced in groups, rolled into Parquet."""

from tidings.journal.journal import Journal as Journal
from tidings.journal.journal import JournalOptions as JournalOptions
from tidings.journal.journal import Replay as Replay
from tidings.journal.reader import JournalReader as JournalReader
from tidings.journal.reader import Wanted as Wanted
from tidings.journal.record import EVENTS as EVENTS
from tidings.journal.record import LOST as LOST
from tidings.journal.record import PASSED as PASSED
from tidings.journal.record import PUBLISH as PUBLISH
from tidings.journal.record import Operation as Operation
from tidings.journal.record import Record as Record
from tidings.journal.record import Span as Span
from tidings.journal.repair import Repair as Repair
from tidings.journal.repair import repair as repair
from tidings.journal.retention import Retention as Retention
from tidings.journal.snapshot import Snapshot as Snapshot
