"""TLS of a broker: contexts from certificate files, which are tried out when they are loaded and can be reloaded."""

import hashlib
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from tidings.broker.config.tables import TlsTable
from tidings.model.errors import InvalidValueError

_SCHEME = "tidings:"
_BUFFER = 65_536


def name_of(certificate: Mapping[str, Any] | None) -> str | None:
    """Return the name that a peer's certificate, in the form of `getpeercert`, gives its holder; None if it has none.

    An alternative name `tidings:NAME` takes precedence over the common name, and that over the first DNS name.
    """
    if not certificate:
        return None
    alternatives: list[tuple[str, str]] = list(certificate.get("subjectAltName", ()))
    for kind, value in alternatives:
        if kind == "URI" and value.startswith(_SCHEME) and value != _SCHEME:
            return unquote(value.removeprefix(_SCHEME))
    for part in certificate.get("subject", ()):
        for kind, value in part:
            if kind == "commonName" and value:
                return str(value)
    return next((value for kind, value in alternatives if kind == "DNS"), None)


def fingerprint_of(certificate: bytes | None) -> bytes:
    """Return the SHA-256 of a certificate in DER; empty if there is none."""
    return hashlib.sha256(certificate).digest() if certificate else b""


class _LoadedCertificate(NamedTuple):
    server: ssl.SSLContext
    link: ssl.SSLContext
    name: str | None
    expires: float
    fingerprint: bytes


class Certificates:
    """The TLS contexts of a broker, from the files of its certificate, its key and its authority.

    A listening socket keeps using `server` after a `reload`: every new connection switches to the files loaded last.
    """

    def __init__(self, tls: TlsTable) -> None:
        self._tls = tls
        self._loaded = _load(tls)
        self.server = _server_context(tls)
        self.server.sni_callback = self._use_what_was_loaded_last

    @property
    def link(self) -> ssl.SSLContext:
        """The context for dialing brokers. It checks no host name: the dialer compares the certificate's `name_of`."""
        return self._loaded.link

    @property
    def name(self) -> str | None:
        """The name in the broker's own certificate."""
        return self._loaded.name

    @property
    def expires(self) -> float:
        """When the broker's own certificate expires, in seconds since 1970."""
        return self._loaded.expires

    @property
    def fingerprint(self) -> bytes:
        """The fingerprint of the broker's own certificate."""
        return self._loaded.fingerprint

    def reload(self) -> None:
        """Read the files again, for new connections. If they cannot be used, raise an error and change nothing."""
        self._loaded = _load(self._tls)

    def _use_what_was_loaded_last(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._loaded.server


def _load(tls: TlsTable) -> _LoadedCertificate:
    server, link = _server_context(tls), _context(tls, ssl.PROTOCOL_TLS_CLIENT)
    link.check_hostname = False
    own, fingerprint = _rehearsed(tls, server, link)
    return _LoadedCertificate(server, link, name_of(own), ssl.cert_time_to_seconds(own["notAfter"]), fingerprint)


def _server_context(tls: TlsTable) -> ssl.SSLContext:
    context = _context(tls, ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED if tls.require_client_certificate else ssl.CERT_OPTIONAL
    context.num_tickets = 0  # a resumed session would not be checked against the current authority
    return context


def _context(tls: TlsTable, protocol: int) -> ssl.SSLContext:
    for key in ("certificate", "key", "authority"):
        try:
            Path(getattr(tls, key)).read_bytes()
        except OSError as error:
            raise InvalidValueError(f"tls.{key}: {getattr(tls, key)}: {error.strerror or error}") from None
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(tls.authority)
    except ssl.SSLError:
        raise InvalidValueError(f"tls.authority: {tls.authority} holds no certificates in PEM") from None
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InvalidValueError(f"tls.key: {tls.key} does not belong to {tls.certificate}") from None
        raise InvalidValueError(
            f"tls.certificate: {tls.certificate} and {tls.key} must be a certificate and its key, in PEM and without "
            f"a password ({error.reason or error})"
        ) from None
    return context


def _no_password() -> str:
    """Refuse encrypted keys; without this, OpenSSL would ask for a password on the terminal."""
    return ""


def _rehearsed(tls: TlsTable, server: ssl.SSLContext, link: ssl.SSLContext) -> tuple[dict[str, Any], bytes]:
    """Return the broker's certificate and its fingerprint, after a TLS handshake of the broker with itself in memory.

    Raises an `InvalidValueError` if the handshake fails, since other brokers would refuse the certificate, too.
    """
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = server.wrap_bio(up, down, server_side=True)
    calling = link.wrap_bio(down, up)
    waiting = [calling, accepting]
    try:
        while waiting:
            for side in tuple(waiting):
                try:
                    side.do_handshake()
                    waiting.remove(side)
                except ssl.SSLWantReadError:
                    pass
    except ssl.SSLCertVerificationError as error:
        raise InvalidValueError(
            f"tls.certificate: {tls.certificate} would be refused: {error.verify_message} (trusted are those of "
            f"{tls.authority})"
        ) from None
    except ssl.SSLError as error:
        raise InvalidValueError(f"tls.certificate: {tls.certificate} cannot be used: {error.reason or error}") from None
    own = calling.getpeercert()
    assert own is not None  # noqa: S101  # the handshake has verified it
    return own, fingerprint_of(calling.getpeercert(binary_form=True))
