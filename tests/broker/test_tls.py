"""Certificates of a broker: who gets in, what is refused before anybody meets it, and what a reload changes."""

import asyncio
import datetime
import ssl
from pathlib import Path

import pytest
import trustme

from tidings.broker.config.tables import TlsTable
from tidings.broker.net.tls import Certificates, name_of
from tidings.model.errors import InvalidValueError

PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def files_of(
    folder: Path, authority: trustme.CA, name: str = "b1", expires: datetime.datetime | None = None, **options: bool
) -> TlsTable:
    issued = authority.issue_cert("broker.example.org", common_name=name, not_after=expires)
    folder.mkdir(exist_ok=True)
    tls = TlsTable(
        certificate=str(folder / "cert.pem"), key=str(folder / "key.pem"), authority=str(folder / "ca.pem"), **options
    )
    chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
    Path(tls.certificate).write_bytes(chain)
    Path(tls.key).write_bytes(issued.private_key_pem.bytes())
    authority.cert_pem.write_to_path(tls.authority)
    return tls


def client_context(authority: trustme.CA, name: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    if name is not None:
        authority.issue_cert(common_name=name).configure_cert(context)
    return context


async def meet(server: ssl.SSLContext, *callers: ssl.SSLContext) -> list[str]:
    """For each caller the name that the server sees and the version of TLS, or that it was refused."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("ssl_object")
        writer.write(f"{name_of(connection.getpeercert())} {connection.version()}".encode())
        writer.close()

    found: list[str] = []
    listening = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        for caller in callers:
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=caller, server_hostname="broker.example.org"
                )
                found.append((await reader.read()).decode() or "refused")
                writer.close()
            except (ssl.SSLError, ConnectionError):
                found.append("refused")
    return found


def test_clients_with_certificates_are_known_by_name(tmp_path: Path, authority: trustme.CA) -> None:
    certificates = Certificates(files_of(tmp_path, authority))
    callers = [
        client_context(authority, "car-1"),
        client_context(authority, None),
        client_context(trustme.CA(), "car-1"),
        certificates.link,
    ]
    assert asyncio.run(meet(certificates.server, *callers)) == ["car-1 TLSv1.3", "refused", "refused", "b1 TLSv1.3"]
    assert certificates.name == "b1"


def test_a_stranger_with_another_authority_is_refused(tmp_path: Path, authority: trustme.CA) -> None:
    certificates = Certificates(files_of(tmp_path, authority, require_client_certificate=False))
    stranger = client_context(authority, None)
    trustme.CA().issue_cert(common_name="car-1").configure_cert(stranger)
    assert asyncio.run(meet(certificates.server, stranger, client_context(authority, None))) == [
        "refused",
        "None TLSv1.3",
    ]


def test_nothing_older_than_tls_1_3_is_spoken(tmp_path: Path, authority: trustme.CA) -> None:
    certificates = Certificates(files_of(tmp_path, authority))
    old = client_context(authority, "car-1")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert asyncio.run(meet(certificates.server, old)) == ["refused"]
    assert certificates.link.minimum_version == ssl.TLSVersion.TLSv1_3


def test_a_link_refuses_a_broker_of_another_authority(tmp_path: Path, authority: trustme.CA) -> None:
    certificates = Certificates(files_of(tmp_path / "one", authority))
    other = Certificates(files_of(tmp_path / "other", trustme.CA(), "b2"))
    assert asyncio.run(meet(other.server, certificates.link)) == ["refused"]


def test_a_reload_counts_for_those_who_come_after_it(tmp_path: Path, authority: trustme.CA) -> None:
    certificates = Certificates(files_of(tmp_path, authority))
    newer = trustme.CA()
    callers = [client_context(authority, "car-1"), client_context(newer, "car-1")]
    assert asyncio.run(meet(certificates.server, *callers)) == ["car-1 TLSv1.3", "refused"]
    before = certificates.expires
    files_of(tmp_path, newer, "b9", datetime.datetime(2036, 1, 1, tzinfo=datetime.UTC))
    assert asyncio.run(meet(certificates.server, *callers)) == ["car-1 TLSv1.3", "refused"]
    certificates.reload()
    assert asyncio.run(meet(certificates.server, *callers)) == ["refused", "car-1 TLSv1.3"]
    assert certificates.name == "b9"
    assert certificates.expires == datetime.datetime(2036, 1, 1, tzinfo=datetime.UTC).timestamp() != before


def test_a_reload_of_broken_files_changes_nothing(tmp_path: Path, authority: trustme.CA) -> None:
    tls = files_of(tmp_path, authority)
    certificates = Certificates(tls)
    Path(tls.key).write_text("")
    with pytest.raises(InvalidValueError):
        certificates.reload()
    assert asyncio.run(meet(certificates.server, client_context(authority, "car-1"))) == ["car-1 TLSv1.3"]


@pytest.mark.parametrize("key", ["certificate", "key", "authority"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, authority: trustme.CA, key: str) -> None:
    tls = files_of(tmp_path, authority)
    Path(getattr(tls, key)).unlink()
    with pytest.raises(InvalidValueError, match=rf"^tls\.{key}: .*: No such file or directory$"):
        Certificates(tls)


def test_a_key_of_another_certificate_is_told(tmp_path: Path, authority: trustme.CA) -> None:
    tls = files_of(tmp_path, authority)
    Path(tls.key).write_bytes(authority.issue_cert(common_name="b2").private_key_pem.bytes())
    with pytest.raises(InvalidValueError, match=r"^tls\.key: .*key\.pem does not belong to .*cert\.pem$"):
        Certificates(tls)


def test_a_certificate_that_has_expired_is_told(tmp_path: Path, authority: trustme.CA) -> None:
    with pytest.raises(InvalidValueError, match=r"^tls\.certificate: .* would be refused: certificate has expired"):
        Certificates(files_of(tmp_path, authority, expires=PAST))


def test_a_certificate_of_another_authority_is_told(tmp_path: Path, authority: trustme.CA) -> None:
    tls = files_of(tmp_path, authority)
    trustme.CA().cert_pem.write_to_path(tls.authority)
    with pytest.raises(InvalidValueError, match=r"would be refused: unable to get local issuer certificate"):
        Certificates(tls)


def test_a_file_without_certificates_is_told(tmp_path: Path, authority: trustme.CA) -> None:
    tls = files_of(tmp_path, authority)
    Path(tls.authority).write_text("nothing")
    with pytest.raises(InvalidValueError, match=r"^tls\.authority: .* holds no certificates in PEM"):
        Certificates(tls)


def test_a_key_with_a_password_asks_nobody(tmp_path: Path, authority: trustme.CA) -> None:
    from cryptography.hazmat.primitives import serialization

    tls = files_of(tmp_path, authority)
    key = serialization.load_pem_private_key(Path(tls.key).read_bytes(), None)
    Path(tls.key).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(InvalidValueError, match=r"in PEM and without a password"):
        Certificates(tls)


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (None, None),
        ({}, None),
        ({"subject": ((("commonName", "b1"),),)}, "b1"),
        ({"subject": ((("organizationName", "o"),), (("commonName", "b1"),))}, "b1"),
        ({"subject": ((("commonName", "b1"),),), "subjectAltName": (("DNS", "h"), ("URI", "tidings:b2"))}, "b2"),
        ({"subject": (), "subjectAltName": (("URI", "https://h"), ("DNS", "h"), ("DNS", "i"))}, "h"),
        ({"subject": (), "subjectAltName": (("URI", "tidings:car%201"),)}, "car 1"),
        ({"subject": (), "subjectAltName": (("URI", "tidings:"),)}, None),
    ],
)
def test_a_certificate_gives_its_holder_a_name(certificate: dict[str, object] | None, name: str | None) -> None:
    assert name_of(certificate) == name
