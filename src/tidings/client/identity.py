"""Who a client is, to brokers that ask for certificates."""

import hashlib
import ssl
from pathlib import Path

import msgspec

from tidings.model.errors import InvalidValueError

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class Identity(msgspec.Struct, frozen=True):
    """The files of a certificate and its key, and of the certificates that brokers are trusted by."""

    authority: str | Path
    certificate: str | Path | None = None
    key: str | Path | None = None
    check_host: bool = True

    def fingerprint(self) -> bytes:
        """Of the certificate that is shown: the first one in its file; empty if there is none, as connecting says."""
        if self.certificate is None:
            return b""
        try:
            text = Path(self.certificate).read_text(errors="replace")
            first = text[text.index(_BEGIN) : text.index(_END) + len(_END)]
            return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).digest()
        except (OSError, ValueError):
            return b""

    def answer(self, broker: str, name: str, nonce: bytes) -> bytes:
        """To a challenge: signed with the certificate's key; empty if there is none."""
        key = self.key or self.certificate
        if key is None:
            return b""
        from tidings.security import challenge  # loads what most clients need not have

        return challenge.signed(key, challenge.said(broker, name, nonce))

    def context(self) -> ssl.SSLContext:
        """TLS 1.3, and nothing older."""
        try:
            made = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(self.authority))
            made.minimum_version = ssl.TLSVersion.TLSv1_3
            made.check_hostname = self.check_host
            if self.certificate is not None:
                made.load_cert_chain(str(self.certificate), None if self.key is None else str(self.key))
        except (OSError, ssl.SSLError) as error:
            raise InvalidValueError(f"identity: {error}") from None
        return made
