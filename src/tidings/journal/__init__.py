"""The journal: the durable, checksummed log of accepted publications and control operations.

Records are appended to a log file, synced in groups, and rolled into Parquet segments; snapshots shorten recovery.
Start with `journal.Journal` (write), `reader.JournalReader` (read without a lock) and `log` (the file format).
"""

from tidings.journal.closed_segments import Retention as Retention
from tidings.journal.journal import Journal as Journal
from tidings.journal.journal import JournalOptions as JournalOptions
from tidings.journal.journal import Replay as Replay
from tidings.journal.reader import JournalReader as JournalReader
from tidings.journal.reader import RecordSelection as RecordSelection
from tidings.journal.record import EVENTS as EVENTS
from tidings.journal.record import LOST as LOST
from tidings.journal.record import PASSED as PASSED
from tidings.journal.record import PUBLISH as PUBLISH
from tidings.journal.record import Operation as Operation
from tidings.journal.record import Record as Record
from tidings.journal.record import Span as Span
from tidings.journal.repair import Repair as Repair
from tidings.journal.repair import repair as repair
from tidings.journal.snapshot import Snapshot as Snapshot
