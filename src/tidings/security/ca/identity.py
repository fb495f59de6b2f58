"""Identities: a certificate with its private key, and the trust anchor of the overlay."""

from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric import ec

from tidings.model.errors import InvalidValueError
from tidings.security.ca.certificates import Certificate, TrustAnchor, read_key, sign, written_key
from tidings.security.vault import write_secret, write_whole

AUTHORITY, CERTIFICATE, KEY = "authority.pem", "certificate.pem", "key.pem"


class Identity:
    """A certificate, its private key and the authority's certificate; signs as the certificate's holder.

    The constructor raises `InvalidValueError` if the key is not the certificate's.
    """

    def __init__(self, certificate: Certificate, key: ec.EllipticCurvePrivateKey, anchor: TrustAnchor) -> None:
        if key.public_key() != certificate.key:
            raise InvalidValueError(f"the key does not belong to the certificate of {certificate.name}")
        self.certificate, self.anchor = certificate, anchor
        self._key = key

    @property
    def name(self) -> str:
        return self.certificate.name

    def sign(self, purpose: str, body: bytes) -> bytes:
        """Sign `body` for a purpose, with the certificate's key."""
        return sign(self._key, purpose, body)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load an identity from a folder that `tidings ca issue` made: authority.pem, certificate.pem, key.pem.

        Raises `InvalidValueError` if a file cannot be read or the files do not belong together.
        """
        read = {}
        for name in (AUTHORITY, CERTIFICATE, KEY):
            try:
                read[name] = Path(folder, name).read_bytes()
            except OSError as error:
                raise InvalidValueError(f"identity: {Path(folder, name)}: {error.strerror or error}") from None
        anchor = TrustAnchor(Certificate.read(read[AUTHORITY]))
        return cls(Certificate.read(read[CERTIFICATE]), read_key(read[KEY]), anchor)

    def save(self, folder: str | Path) -> None:
        """Write the three files into a folder; only the owner can read the key."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path / AUTHORITY, self.anchor.certificate.pem)
        write_whole(path / CERTIFICATE, self.certificate.pem)
        write_secret(path / KEY, written_key(self._key))

    def __repr__(self) -> str:
        return f"<Identity of {self.name}, {self.certificate.role.value}>"
