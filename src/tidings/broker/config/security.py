"""The table `[security]` of a broker's file: its identity, secure topics and challenges."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from tidings.broker.config.table_types import ConfigTable, Milliseconds, Names, config_key
from tidings.broker.config.tables import TlsTable
from tidings.model.errors import InvalidValueError
from tidings.security.ca.identity import AUTHORITY, CERTIFICATE, KEY
from tidings.security.gate import FRESHNESS


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
