"""Policies in files: as text or as XML, whichever it is."""

from pathlib import Path

from tidings.model.errors import InvalidValueError
from tidings.policy.policy import Policy


def read_policy(path: Path) -> Policy:
    try:
        return policy_in(path.read_bytes(), path)
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None


def policy_in(data: bytes, path: Path) -> Policy:
    """The policy in what was read from there."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidValueError(f"{path}: is not UTF-8 text") from None
    return Policy.from_xml(data) if text.lstrip().startswith("<") else Policy.parse(text)
