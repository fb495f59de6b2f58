"""`tidings trust`: the secrets of trust groups, as files."""

import time
from pathlib import Path

from tidings.cli.terminal import out
from tidings.model.errors import InvalidValueError
from tidings.security import joining
from tidings.security.files import read_secret, write_secret
from tidings.security.identity import Identity
from tidings.security.trust import Group


def init(group: str, to: Path) -> None:
    _check_new(to)
    Group.new(group).save(to)
    out.print(f"{to} is the secret of the trust group {group}: who has it belongs to the group", markup=False)


def ask(group: str, identity: Path, request: Path, key: Path) -> None:
    for path in (request, key):
        _check_new(path)
    made = joining.request(Identity.load(identity), group, _now())
    write_secret(key, made.key)
    request.write_bytes(made.data)
    out.print(f"give {request} to a member of {group}, and keep {key} for its answer", markup=False)


def invite(group: str, secret: Path, identity: Path, request: Path, members: list[str], to: Path) -> None:
    held = Group.load(group, secret)
    answer = joining.invite(held, _read(request), Identity.load(identity), members, _now())
    to.write_bytes(answer)
    out.print(f"{to} is the answer: only who has made the request can open it", markup=False)


def join(answer: Path, identity: Path, request: Path, key: Path, to: Path, by: list[str]) -> None:
    _check_new(to)
    requested = joining.Requested(_read(request), read_secret(key, joining.KEY_BYTES))
    joined = joining.join(_read(answer), requested, Identity.load(identity), _now(), by=by)
    joined.save(to)
    key.unlink()  # whoever finds it later opens nothing with it
    out.print(f"{to} is the secret of the trust group {joined.name}", markup=False)


def _check_new(path: Path) -> None:
    if path.exists():
        raise InvalidValueError(f"{path} is there already; name another file, or remove it")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None


def _now() -> int:
    return time.time_ns() // 1000
