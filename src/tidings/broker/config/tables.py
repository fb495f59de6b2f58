"""The tables of a broker's file that occur once: broker, journal, heartbeat, limits, TLS, security, HTTP and logs."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from tidings.broker.config.table_types import (
    Address,
    ConfigTable,
    Milliseconds,
    Names,
    Positive,
    Rate,
    Seconds,
    check_names,
    config_key,
)
from tidings.configuration import check_parses, one_of
from tidings.engine.settings import Settings
from tidings.journal import JournalOptions
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.model.limits import MAX_FRAME_BYTES, MAX_FRAME_BYTES_BEFORE_HELLO
from tidings.security.ca.identity import AUTHORITY, CERTIFICATE, KEY
from tidings.security.gate import FRESHNESS

MEBIBYTE = 1024 * 1024
LOSE_OLDEST, DISCONNECT = "lose_oldest", "disconnect"
LEVELS = ("debug", "info", "warning", "error")
TEXT, JSON = "text", "json"
_ENGINE, _JOURNAL = Settings(), JournalOptions()


class BrokerTable(ConfigTable, frozen=True, kw_only=True):
    """The broker itself: its name, its addresses, its routing strategy, and the rights of clients."""

    name: Annotated[str, config_key("The broker's name. No other broker of the overlay and no client may have it.")] = (
        "b1"
    )
    host: Annotated[str, config_key("The name of its host, as policies see it.")] = ""
    listen: Annotated[
        str, config_key("The address where clients and other brokers are awaited. Port 0 picks one that is free.")
    ] = "127.0.0.1:7450"
    advertise: Annotated[
        str,
        config_key("The address that others use, if it is not the one in `listen`; empty: the same."),
    ] = ""
    strategy: Annotated[
        str,
        config_key("How subscriptions find their way: `advertisement`, `asf`, `gsf` or `spcf`; the same everywhere."),
    ] = _ENGINE.strategy
    merging: Annotated[
        bool, config_key("Whether what is sent over a link is merged where that changes nothing else.")
    ] = _ENGINE.merging
    advertisements_required: Annotated[
        bool | None,
        config_key("Whether one may publish only what one has advertised; unset: where advertisements lead the way."),
    ] = _ENGINE.advertisements_required
    govern: Annotated[Names, config_key("The clients whose policies may decide for others.", reloaded=True)] = ()
    observers: Annotated[Names | None, config_key("The clients that get meta-events; unset: all.", reloaded=True)] = (
        None
    )
    operators: Annotated[
        Names,
        config_key("The clients that may look at tables, set policies on what others own, and stop it.", reloaded=True),
    ] = ("operator",)
    settling_ms: Annotated[
        Milliseconds, config_key("How long the network must be quiet before tables are rebuilt.")
    ] = _ENGINE.settling_microseconds // 1_000
    grace_ms: Annotated[
        Milliseconds, config_key("So long a context counts after it has changed, for events that are under way.")
    ] = _ENGINE.grace_microseconds // 1_000
    large_message_bytes: Annotated[Positive, config_key("From this size on a message is large, for policies.")] = (
        _ENGINE.large_message_bytes
    )
    abroad: Annotated[Names, config_key("The neighbours that belong to another sub-overlay.")] = ()
    stop_seconds: Annotated[
        Seconds, config_key("So long a broker that is stopped gives its clients what waits for them.", reloaded=True)
    ] = 10.0

    def __post_init__(self) -> None:
        check_parses("name", checked_client, self.name)
        check_parses("listen", Address.parse, self.listen)
        if self.advertise:
            check_parses("advertise", Address.parse, self.advertise)
            if not Address.parse(self.advertise).port:
                raise InvalidValueError("advertise: port 0 tells others nothing; name the port")
        for key in ("govern", "observers", "operators", "abroad"):
            check_names(key, getattr(self, key) or ())
        self.settings()

    def settings(self) -> Settings:
        """Return the engine's settings."""
        return Settings(
            name=self.name,
            host=self.host,
            govern=frozenset(self.govern),
            observers=None if self.observers is None else frozenset(self.observers),
            strategy=self.strategy,
            merging=self.merging,
            settling_microseconds=self.settling_ms * 1_000,
            grace_microseconds=self.grace_ms * 1_000,
            advertisements_required=self.advertisements_required,
            abroad=frozenset(self.abroad),
            large_message_bytes=self.large_message_bytes,
        )


class JournalTable(ConfigTable, frozen=True, kw_only=True):
    """The journal: what the broker has accepted, on disk. Without a folder the broker keeps its state in memory
    only."""

    folder: Annotated[str, config_key("The journal's folder; empty: there is none.", is_path=True)] = ""
    roll_bytes: Annotated[Positive, config_key("A log of this size is closed, and a new one begun.")] = (
        _JOURNAL.roll_bytes
    )
    roll_records: Annotated[Positive, config_key("The same by its number of records.")] = _JOURNAL.roll_records
    retain_days: Annotated[
        Rate | None,
        config_key("Older files may be removed once no subscription needs them; unset: never.", reloaded=True),
    ] = None
    retain_bytes: Annotated[
        Positive | None,
        config_key("What is over this size may be removed, the oldest first; unset: never.", reloaded=True),
    ] = None
    snapshot_rows: Annotated[Positive, config_key("A snapshot is written after so many control operations.")] = 5_000

    def options(self) -> JournalOptions:
        """Return the journal's options. Full logs become segments later, not in the call that has filled them."""
        return JournalOptions(roll_bytes=self.roll_bytes, roll_records=self.roll_records, convert=False)


class HeartbeatTable(ConfigTable, frozen=True, kw_only=True):
    """How the broker notices that the other side of a link or a connection no longer answers."""

    interval_ms: Annotated[
        Annotated[int, Meta(ge=10, le=3_600_000)], config_key("So often something is sent where nothing else is to be.")
    ] = 500
    patience: Annotated[
        Annotated[int, Meta(ge=2)], config_key("After so many intervals without a word the other side counts as gone.")
    ] = 6


class LimitsTable(ConfigTable, frozen=True, kw_only=True):
    """Limits on clients and neighbours. A client above a rate is slowed down; a request above a count is refused."""

    connections: Annotated[Positive, config_key("Connections at a time.", reloaded=True)] = 10_000
    connections_per_address: Annotated[Positive, config_key("Connections at a time from one host.", reloaded=True)] = (
        1_000
    )
    handshake_seconds: Annotated[
        Seconds, config_key("A connection that has not completed its handshake by then is closed.", reloaded=True)
    ] = 5.0
    frame_bytes: Annotated[
        Annotated[int, Meta(ge=MAX_FRAME_BYTES_BEFORE_HELLO, le=MAX_FRAME_BYTES)],
        config_key("The largest frame that is taken; a larger one ends the connection.", reloaded=True),
    ] = MAX_FRAME_BYTES
    publications_per_second: Annotated[
        Rate | None,
        config_key("So many publications a client may send in the long run; unset: any number.", reloaded=True),
    ] = None
    publications_burst: Annotated[
        Positive | None, config_key("So many of them at once; unset: those of a second.", reloaded=True)
    ] = None
    bytes_per_second: Annotated[
        Rate | None, config_key("So many bytes a client may send in the long run; unset: any number.", reloaded=True)
    ] = None
    in_flight: Annotated[
        Positive, config_key("Publications of a client that wait for their receipts at a time.", reloaded=True)
    ] = 4_096
    queue_bytes: Annotated[Positive, config_key("What waits for one client, in bytes.", reloaded=True)] = 8 * MEBIBYTE
    queue_notifications: Annotated[Positive, config_key("The same in notifications.", reloaded=True)] = 10_000
    slow_consumer: Annotated[
        str,
        config_key(
            "What happens to a client for which more waits, since it does not read: it loses the oldest notifications "
            "(`lose_oldest`), or its connection (`disconnect`). Others do not feel it; a meta-event tells what was "
            "lost.",
            reloaded=True,
        ),
    ] = LOSE_OLDEST
    slow_seconds: Annotated[
        Seconds,
        config_key(
            "With `disconnect`: so long a client may not read at all, however little waits for it.", reloaded=True
        ),
    ] = 5.0
    link_queue_bytes: Annotated[
        Positive,
        config_key(
            "The most bytes that wait for one neighbour; beyond that the link is dialled again.",
            reloaded=True,
        ),
    ] = 64 * MEBIBYTE
    subscriptions_per_client: Annotated[Positive, config_key("Subscriptions of one client.", reloaded=True)] = 100_000
    subscriptions: Annotated[Positive, config_key("The same of all clients together.", reloaded=True)] = 2_000_000
    advertisements_per_client: Annotated[Positive, config_key("Advertisements of one client.", reloaded=True)] = 10_000
    advertisements: Annotated[
        Positive, config_key("With so many in its tables a broker takes no more of its clients.", reloaded=True)
    ] = 1_000_000
    subjects: Annotated[
        Positive, config_key("The same of subjects with schemas, which stay for good.", reloaded=True)
    ] = 10_000
    entrusted_per_client: Annotated[
        Positive, config_key("So many others a client may let set its context.", reloaded=True)
    ] = 1_000
    unsettled: Annotated[
        Positive,
        config_key("Publications under way to other brokers at a time; past it, publishers wait.", reloaded=True),
    ] = 100_000

    bogus_attempts: Annotated[
        Positive,
        config_key(
            "So many handshakes, proofs or tokens that are refused may come from one host, or with one certificate, "
            "within `bogus_seconds`; with more, it is shut out for a while, which doubles each time.",
            reloaded=True,
        ),
    ] = 1_000
    bogus_seconds: Annotated[
        Annotated[float, Meta(gt=0, le=86_400)], config_key("The time in which these are forgotten.", reloaded=True)
    ] = 60.0
    shut_out_seconds: Annotated[
        Annotated[float, Meta(gt=0, le=86_400)],
        config_key("So long one is shut out for the first time.", reloaded=True),
    ] = 1.0

    def __post_init__(self) -> None:
        one_of("slow_consumer", self.slow_consumer, (LOSE_OLDEST, DISCONNECT))
        if self.publications_burst is not None and self.publications_per_second is None:
            raise InvalidValueError("publications_burst: has no meaning without publications_per_second")


class TlsTable(ConfigTable, frozen=True, kw_only=True):
    """TLS 1.3, used if there is a certificate. A reload reads the files again; it does not change their names."""

    certificate: Annotated[
        str,
        config_key("The file of the broker's certificate, with those between it and the authority's.", is_path=True),
    ] = ""
    key: Annotated[str, config_key("The file of its private key.", is_path=True)] = ""
    authority: Annotated[str, config_key("The file of the certificates that others are trusted by.", is_path=True)] = ""
    require_client_certificate: Annotated[
        bool,
        config_key(
            "Whether clients need certificates, too. Brokers always do, where there is TLS, and so do operators, those "
            "who govern and observers; else a client without one may have any name that nobody with one has just now."
        ),
    ] = True
    check_names: Annotated[
        bool, config_key("Whether a client or a broker must have the name that its certificate says.")
    ] = True
    plain: Annotated[
        bool,
        config_key("Whether there is no TLS even where `[security]` names an identity, whose files would do for it."),
    ] = False
    plain_beyond_loopback: Annotated[
        bool, config_key("Whether one may listen without TLS where other machines can connect, trusting the network.")
    ] = False

    def __post_init__(self) -> None:
        files = {key: getattr(self, key) for key in ("certificate", "key", "authority")}
        missing = [key for key, file in files.items() if not file]
        if missing and len(missing) < len(files):
            raise InvalidValueError(f"{missing[0]}: is missing; TLS takes a certificate, its key and an authority")
        if self.plain and not missing:
            raise InvalidValueError("plain: there is a certificate; leave out one of the two")

    @property
    def is_on(self) -> bool:
        """Whether TLS is used: a certificate is configured."""
        return bool(self.certificate)


class SecurityTable(ConfigTable, frozen=True, kw_only=True):
    """Secure topics: a broker with an identity checks tokens and seals, and refuses what it cannot trust. A reload
    reads the files of revocations and topics again. Challenges need no identity."""

    identity: Annotated[
        str,
        config_key(
            "The folder that `tidings ca issue` has made for the broker. Its certificate, key and authority are those "
            "of `[tls]`, too, where that names none. Empty: tokens and seals are not checked.",
            is_path=True,
        ),
    ] = ""
    overlay: Annotated[str, config_key("The name of the overlay, as topic records and tokens say it.")] = "tidings"
    verify_signatures: Annotated[
        bool,
        config_key("Whether signatures of sealed events are checked here; subscribers do in any case.", reloaded=True),
    ] = True
    freshness_ms: Annotated[
        Annotated[int, Meta(ge=1, le=86_400_000)],
        config_key("So much may a publisher's clock differ; older events are taken for replayed ones.", reloaded=True),
    ] = FRESHNESS // 1_000
    revocations: Annotated[
        str,
        config_key(
            "A file of the authority's list of revocations, to start with; newer ones come over the overlay. Without "
            "any list that is young enough, nothing is trusted.",
            reloaded=True,
            is_path=True,
        ),
    ] = ""
    topics: Annotated[
        Names,
        config_key(
            "Files of topic records that are known from the start; others are learnt.", reloaded=True, is_path=True
        ),
    ] = ()

    challenge_interval_ms: Annotated[
        Milliseconds,
        config_key(
            "So often a client with a certificate has to sign that it still holds the certificate's key; 0: never.",
            reloaded=True,
        ),
    ] = 0
    answer_ms: Annotated[
        Annotated[int, Meta(ge=10, le=600_000)],
        config_key(
            "A challenge, of a client or of a neighbour, that is not answered by then has failed.", reloaded=True
        ),
    ] = 5_000

    def __post_init__(self) -> None:
        if not self.overlay:
            raise InvalidValueError("overlay: an overlay needs a name")
        for key in ("revocations", "topics"):
            if getattr(self, key) and not self.identity:
                raise InvalidValueError(f"{key}: has no meaning without an identity")

    @property
    def is_on(self) -> bool:
        """Whether the broker has an identity, and so checks tokens and seals."""
        return bool(self.identity)

    def of_transport(self, tls: TlsTable) -> TlsTable:
        """Return `[tls]` with the files of the identity, if `[tls]` names none and does not turn TLS off."""
        if not self.is_on or tls.is_on or tls.plain:
            return tls
        folder = Path(self.identity)
        return msgspec.structs.replace(
            tls,
            certificate=str(folder / CERTIFICATE),
            key=str(folder / KEY),
            authority=str(folder / AUTHORITY),
        )


class HttpTable(ConfigTable, frozen=True, kw_only=True):
    """The HTTP port for monitoring: `/metrics`, `/healthz` and `/readyz`. It has no TLS."""

    listen: Annotated[
        str, config_key("Its address, such as `127.0.0.1:7480`; port 0 picks one; empty: there is none.")
    ] = ""

    def __post_init__(self) -> None:
        if self.listen:
            check_parses("listen", Address.parse, self.listen)


class LogsTable(ConfigTable, frozen=True, kw_only=True):
    """The broker's log, one line for each record."""

    level: Annotated[
        str, config_key("The least that is told: `debug`, `info`, `warning` or `error`.", reloaded=True)
    ] = "info"
    format: Annotated[str, config_key("`text`, for people, or `json`, for programs.", reloaded=True)] = TEXT
    file: Annotated[
        str, config_key("The file that lines go to; empty: standard error.", reloaded=True, is_path=True)
    ] = ""

    def __post_init__(self) -> None:
        one_of("level", self.level, LEVELS)
        one_of("format", self.format, (TEXT, JSON))
