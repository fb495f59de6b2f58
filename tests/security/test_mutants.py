"""No check is idle: where one is taken out, an attack gets through, and a test says so."""

import pytest

from tests.security.mutants import Check, checks, is_killed
from tests.strategies import LONG

# What is refused again without them, a little later or more slowly.
IDLE = {
    "raise SecurityError(refused.check, refused.reason)",  # what is remembered of a bad token
}
CHECKS = [one for one in checks() if one.text not in IDLE]


def test_there_are_checks() -> None:
    assert len(CHECKS) > 70
    assert {one.text for one in checks()} >= IDLE


def test_with_all_checks_no_test_fails() -> None:
    """Else every mutant would count as noticed."""
    assert not is_killed(Check("trust", 0, "nothing"))


@pytest.mark.parametrize("check", CHECKS if LONG else CHECKS[::30], ids=lambda one: f"{one.module}-{one.line}")
def test_a_missing_check_is_noticed(check: Check) -> None:
    assert is_killed(check), f"nothing fails without: {check.text}"
