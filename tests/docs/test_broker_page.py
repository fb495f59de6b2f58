"""The reference of a broker's file is what the program writes."""

from tests.docs.shell import ROOT
from tidings.broker.config.reference_page import page


def test_the_page_is_what_the_program_writes() -> None:
    written = (ROOT / "docs" / "reference" / "broker-configuration.md").read_text()
    assert written == page(), "write it anew: tidings config reference > docs/reference/broker-configuration.md"
