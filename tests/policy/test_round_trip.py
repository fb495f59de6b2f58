"""A policy is the same in both notations, and each gives it back."""

from hypothesis import given

from tests.policy.strategies import policies
from tests.sizes import examples
from tidings.policy.policy import Policy


@examples(41, 1_000)
@given(policies)
def test_canonical_text_parses_back(policy: Policy) -> None:
    text = str(policy)
    assert Policy.parse(text) == policy, text
    assert str(Policy.parse(text)) == text


@examples(48, 2_000)
@given(policies)
def test_xml_reads_back(policy: Policy) -> None:
    document = policy.to_xml()
    assert Policy.from_xml(document) == policy, document
    assert Policy.from_xml(document.encode()) == policy


@examples(52, 1_500)
@given(policies)
def test_text_to_xml_to_text(policy: Policy) -> None:
    text = str(policy)
    assert str(Policy.from_xml(Policy.parse(text).to_xml())) == text
