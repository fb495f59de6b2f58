"""No check is idle: where one is taken out, an attack gets through, and a test says so."""

import pytest

from tests.security.mutants import MODULES, Check, checks, is_killed
from tests.sizes import LONG

# What is refused again without them, a little later or more slowly.
IDLE = {
    (
        "security.tokens.credentials",
        "raise SecurityError(refused.check, refused.reason)",
    ),  # what is remembered of a bad token
    ("security.sealing.envelope", "len(event.payload) < _TAG"),  # the cipher says the same
    ("security.gate", "event.signature is None"),  # it would have no seal that can be read
    (
        "security.tokens.token",
        "record.check(anchor, overlay, now)",
    ),  # it is looked at where it is learnt, and its end is kept
    (
        "security.tdn.discovery_node",
        "self.credentials.revocations.check(record.service.certificate, MAX_INTEGER)",
    ),  # its owner's
    ("security.kmc.challenges", "enrolment is None"),  # nobody else is asked anything
    ("security.kmc.state", "record is None"),  # a centre knows the topics that it has, and no others
    ("security.kmc.state", "topic not in self.topics"),
    (
        "broker.security.reauthentication",
        "raise SecurityError('signature', 'the client cannot prove that it holds the key of its certificate')",
    ),  # nothing is no signature either
    (
        "security.tdn.discovery_records",
        "restriction.check()",
    ),  # where it is made; it is looked at again where it is read
}
CHECKS = [one for one in checks() if (one.module, one.text) not in IDLE]
TESTED = {tests: module for module, tests in MODULES.items()}


def test_there_are_checks() -> None:
    assert len(CHECKS) > 290
    assert {(one.module, one.text) for one in checks()} >= IDLE
    assert {one.module for one in CHECKS} == set(MODULES)


@pytest.mark.process
@pytest.mark.parametrize("module", TESTED.values() if LONG else ["security.trust_group"])
def test_with_all_checks_no_test_fails(module: str) -> None:
    """Else every mutant would count as noticed."""
    assert not is_killed(Check(module, 0, 0, "nothing"))


@pytest.mark.process
@pytest.mark.parametrize(
    "check", CHECKS if LONG else CHECKS[::160], ids=lambda one: f"{one.module}-{one.line}-{one.part}"
)
def test_a_missing_check_is_noticed(check: Check) -> None:
    assert is_killed(check), f"nothing fails without: {check.text}"
