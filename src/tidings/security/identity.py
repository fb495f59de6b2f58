"""An identity: a certificate, its private key, and the authority that others of this overlay are trusted by."""

from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric import ec

from tidings.model.errors import InvalidValueError
from tidings.security.certificates import Anchor, Certificate, read_key, sign, written_key
from tidings.security.files import write_secret, write_whole

AUTHORITY, CERTIFICATE, KEY = "authority.pem", "certificate.pem", "key.pem"


class Identity:
    def __init__(self, certificate: Certificate, key: ec.EllipticCurvePrivateKey, anchor: Anchor) -> None:
        if key.public_key() != certificate.key:
            raise InvalidValueError(f"the key does not belong to the certificate of {certificate.name}")
        self.certificate, self.anchor = certificate, anchor
        self._key = key

    @property
    def name(self) -> str:
        return self.certificate.name

    def sign(self, purpose: str, body: bytes) -> bytes:
        return sign(self._key, purpose, body)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Of a folder as `tidings ca issue` makes it: authority.pem, certificate.pem, key.pem."""
        read = {}
        for name in (AUTHORITY, CERTIFICATE, KEY):
            try:
                read[name] = Path(folder, name).read_bytes()
            except OSError as error:
                raise InvalidValueError(f"identity: {Path(folder, name)}: {error.strerror or error}") from None
        anchor = Anchor(Certificate.read(read[AUTHORITY]))
        return cls(Certificate.read(read[CERTIFICATE]), read_key(read[KEY]), anchor)

    def save(self, folder: str | Path) -> None:
        """The key can be read by its owner only."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path / AUTHORITY, self.anchor.certificate.pem)
        write_whole(path / CERTIFICATE, self.certificate.pem)
        write_secret(path / KEY, written_key(self._key))

    def __repr__(self) -> str:
        return f"<Identity of {self.name}, {self.certificate.role.value}>"
