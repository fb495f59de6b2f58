"""The releases whose data are opened."""

import pytest

from tests.compatibility.release import RELEASES, Release


@pytest.fixture(params=RELEASES, ids=lambda release: release.version)
def release(request: pytest.FixtureRequest) -> Release:
    """Each release in turn: a test that asks for it runs once with the data of each."""
    given: Release = request.param
    return given
