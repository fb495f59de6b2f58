"""`tidings policy`: policies read, checked and written."""

import sys
from enum import StrEnum
from pathlib import Path

from tidings.cli.caller import Caller
from tidings.cli.terminal import out, print_json
from tidings.model.limits import MAX_POLICY_XML_BYTES
from tidings.policy import Policy
from tidings.policy.conflicts import findings
from tidings.policy.file import policy_in, read_policy
from tidings.policy.placement import Where, check_placement


class On(StrEnum):
    """What a policy is given with, in one word."""

    PUBLICATION = "publication"
    SUBSCRIPTION = "subscription"
    ADVERTISEMENT = "advertisement"
    UNSUBSCRIPTION = "unsubscription"
    UNADVERTISEMENT = "unadvertisement"

    @property
    def where(self) -> Where:
        return Where[f"ATTACHED_TO_{self.name}"]


def check(path: Path, on: On | None, *, hub: bool, xml: bool, as_json: bool) -> None:
    """Reads a policy (text or XML), says where it may stand and what is suspicious, and writes it canonically."""
    policy = read(path)
    places = [one for one in On if _may_stand(policy, one)]
    found = findings(policy)
    if on is not None:
        found += check_placement(policy, on.where, hub=hub)
    written = policy.to_xml() if xml else str(policy)
    if as_json:
        print_json({"policy": written, "with": [str(one) for one in places], "findings": [str(one) for one in found]})
        return
    out.print(written, markup=False, soft_wrap=True)
    out.print(
        f"may be given with: {', '.join(places) or 'nothing; its rules are for different messages'}", markup=False
    )
    for one in found:
        out.print(str(one), markup=False, soft_wrap=True)


def apply(caller: Caller, path: Path, to: str, *, as_json: bool) -> None:
    """Sets it on a subscription or an advertisement: as its owner, or as an operator beside the owner's."""
    policy = read(path)
    with caller.opened() as client:
        found = client.set_policy(to, policy)
    if as_json:
        print_json({"id": to, "policy": str(policy), "findings": found})
        return
    for one in found:
        out.print(one, markup=False, soft_wrap=True)


def remove(caller: Caller, to: str, *, as_json: bool) -> None:
    with caller.opened() as client:
        client.set_policy(to, None)
    if as_json:
        print_json({"id": to, "policy": None, "findings": []})


def _may_stand(policy: Policy, on: On) -> bool:
    try:
        check_placement(policy, on.where)
    except ValueError:
        return False
    return True


def read(path: Path) -> Policy:
    if str(path) == "-":
        return policy_in(sys.stdin.buffer.read(MAX_POLICY_XML_BYTES + 1), path)
    return read_policy(path)
