"""The commands of `tidings trust`: hand the secret of a trust group to its members, as files.

A joining member writes a request (`ask`) and keeps its key; a member of the group answers it (`invite`); the joining
member opens the answer with the key (`join`).
"""

import time
from pathlib import Path

from tidings.cli.output import out
from tidings.model.errors import InvalidValueError
from tidings.security import trust_group
from tidings.security.ca.identity import Identity
from tidings.security.trust_group import TrustGroup
from tidings.security.vault import read_secret, write_secret


def init(group: str, to: Path) -> None:
    """Create a trust group, and save its secret in a file."""
    _check_new(to)
    TrustGroup.new(group).save(to)
    out.print(f"{to} is the secret of the trust group {group}: who has it belongs to the group", markup=False)


def ask(group: str, identity: Path, request: Path, key: Path) -> None:
    """Write a request for a group's secret, and the key that opens the answer.

    Raises InvalidValueError if a file exists.

    Args:
        group: The group's name.
        identity: The folder of the requester's identity.
        request: The file to write the request to.
        key: The file to write the request's key to.
    """
    for path in (request, key):
        _check_new(path)
    created = trust_group.request(Identity.load(identity), group, _now())
    write_secret(key, created.key)
    request.write_bytes(created.data)
    out.print(f"give {request} to a member of {group}, and keep {key} for its answer", markup=False)


def invite(group: str, secret: Path, identity: Path, request: Path, members: list[str], to: Path) -> None:
    """Answer a request: seal the group's secret for the requester, if it is one of `members`.

    Args:
        group: The group's name.
        secret: The file of the group's secret.
        identity: The folder of the answering member's identity.
        request: The file of the request.
        members: The names of the entities that may have the secret.
        to: The file to write the answer to.
    """
    group_secret = TrustGroup.load(group, secret)
    answer = trust_group.invite(group_secret, _read(request), Identity.load(identity), members, _now())
    to.write_bytes(answer)
    out.print(f"{to} is the answer: only who has made the request can open it", markup=False)


def join(answer: Path, identity: Path, request: Path, key: Path, to: Path, by: list[str]) -> None:
    """Open the answer to a request, save the group's secret, and delete the request's key.

    Args:
        answer: The file of the answer.
        identity: The folder of the requester's identity.
        request: The file of the request.
        key: The file of the request's key.
        to: The file to save the group's secret in.
        by: The names of members that the answer may be from; empty: any.
    """
    _check_new(to)
    enrolment = trust_group.EnrolmentRequest(_read(request), read_secret(key, trust_group.KEY_BYTES))
    group = trust_group.join(_read(answer), enrolment, Identity.load(identity), _now(), by=by)
    group.save(to)
    key.unlink()  # so that nobody can open the answer with it later
    out.print(f"{to} is the secret of the trust group {group.name}", markup=False)


def _check_new(path: Path) -> None:
    if path.exists():
        raise InvalidValueError(f"{path} exists already: name another file, or remove it")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None


def _now() -> int:
    return time.time_ns() // 1000
