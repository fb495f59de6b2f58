"""The TLS identity of a client, for brokers that ask for certificates."""

import hashlib
import ssl
from pathlib import Path

import msgspec

from tidings.model.errors import InvalidValueError

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class TlsIdentity(msgspec.Struct, frozen=True):
    """The files of a client's certificate and key, and of the authority that issues the brokers' certificates."""

    authority: str | Path
    certificate: str | Path | None = None
    key: str | Path | None = None
    check_host: bool = True

    def fingerprint(self) -> bytes:
        """Return the fingerprint of the client's certificate, the first in its file.

        Empty if it has none or cannot read it. An unreadable file raises an error when the client connects.
        """
        if self.certificate is None:
            return b""
        try:
            text = Path(self.certificate).read_text(errors="replace")
            first = text[text.index(_BEGIN) : text.index(_END) + len(_END)]
            return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).digest()
        except (OSError, ValueError):
            return b""

    def answer(self, broker: str, name: str, nonce: bytes) -> bytes:
        """Sign a broker's challenge with the certificate's key; empty without a key."""
        key = self.key or self.certificate
        if key is None:
            return b""
        from tidings.security.ca import certificates  # loads cryptography, which most clients do not need

        return certificates.sign_challenge(key, certificates.challenge_body(broker, name, nonce))

    def context(self) -> ssl.SSLContext:
        """Return the TLS context, for TLS 1.3 only.

        Raises:
            InvalidValueError: A file cannot be read.
        """
        try:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(self.authority))
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.check_hostname = self.check_host
            if self.certificate is not None:
                context.load_cert_chain(str(self.certificate), None if self.key is None else str(self.key))
        except (OSError, ssl.SSLError) as error:
            raise InvalidValueError(f"identity: {error}") from None
        return context
