"""Who a client is, to brokers that ask for certificates."""

import ssl
from pathlib import Path

import msgspec

from tidings.model.errors import InvalidValueError


class Identity(msgspec.Struct, frozen=True):
    """The files of a certificate and its key, and of the certificates that brokers are trusted by."""

    authority: str | Path
    certificate: str | Path | None = None
    key: str | Path | None = None
    check_host: bool = True

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
