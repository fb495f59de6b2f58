"""Elements of one's own, as an application would register them: they are known to all tests of this package."""

from collections.abc import Iterator

import pytest

from tests.policy import own
from tidings.policy import registry


@pytest.fixture(scope="package", autouse=True)
def _own_elements() -> Iterator[None]:
    names = own.register()
    yield
    for name in names:
        registry.unregister(name)
