"""The attacks that are to be refused, each with the tests that show it: a test that is gone is missed here."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECURITY, LIVE = "tests/security", "tests/broker"
ATTACKS = {
    "forged, truncated, expired, not-yet-valid, wrong-topic, wrong-right, wrong-audience tokens": [
        f"{SECURITY}/test_attacks.py::test_refused",
        f"{SECURITY}/test_paths.py::test_through_a_hub",
        f"{SECURITY}/test_paths.py::test_by_a_durable_replay",
        f"{SECURITY}/test_paths.py::test_through_a_simulated_overlay",
        f"{SECURITY}/test_paths.py::test_between_brokers",
        f"{SECURITY}/test_paths.py::test_through_live_brokers",
        "tests/spark/test_security.py::test_every_attack_is_rejected",
        f"{SECURITY}/test_attacks.py::test_subscriptions_with_such_tokens_are_refused",
    ],
    "revoked tokens": [
        f"{SECURITY}/test_attacks.py::test_tokens_die_with_the_certificates_in_them",
        f"{SECURITY}/test_attacks.py::test_what_was_granted_and_taken_back_counts_no_more",
        f"{LIVE}/test_security_sessions.py::test_connections_of_a_revoked_certificate_are_closed_at_once_and_not_opened_again",
    ],
    "a token signed by a certificate that is no centre's": [f"{SECURITY}/test_attacks.py::test_refused"],
    "replay, also after a restart": [
        f"{SECURITY}/test_attacks.py::test_replays_are_refused_where_they_enter",
        f"{SECURITY}/test_attacks.py::test_what_came_before_is_refused_even_where_its_publisher_was_forgotten",
        "tests/hub/test_security.py::test_a_replay_under_another_id_is_refused_also_after_a_restart",
        f"{LIVE}/test_security_events.py::test_what_came_before_is_refused_also_after_a_restart",
        f"{SECURITY}/test_envelope.py::test_an_opener_takes_each_event_once",
    ],
    "changed attribute, payload, epoch or publisher": [f"{SECURITY}/test_attacks.py::test_refused"],
    "sealed under an old epoch after a revocation": [
        f"{SECURITY}/test_attacks.py::test_after_a_compromise_no_older_epoch_is_accepted",
        f"{SECURITY}/test_kmc.py::test_who_was_revoked_reads_nothing_that_is_sealed_after_it",
    ],
    "templates that would match more than was granted": [
        f"{SECURITY}/test_topic_record.py::test_a_token_is_never_for_more_than_its_topic",
        f"{SECURITY}/test_topic_record.py::test_a_template_grants_no_neighbouring_number",
        f"{SECURITY}/test_attacks.py::test_only_who_has_a_token_for_it_gets_an_event",
    ],
    "deny rules bypassed by durable replay or by a second subscription": [
        f"{SECURITY}/test_bypasses.py::test_a_deny_rule_is_not_bypassed",
        "tests/engine/test_attacks.py::test_a_firewall_is_not_evaded_by_saying_for_whom_an_event_is",
    ],
    "deny rules bypassed by Spark": [
        "tests/spark/test_security.py::test_a_hubs_journal_tells_who_got_what_was_sealed",
        "tests/spark/test_history.py::test_routing_it_under_the_policies_of_their_time_gives_what_the_hub_gave",
    ],
    "XML with entities, deep nesting": [
        "tests/policy/test_xml_format.py::test_no_dtd_and_no_entity_is_read",
        "tests/policy/test_xml_format.py::test_deep_nesting_is_refused",
    ],
    "huge lengths and half frames": [
        f"{LIVE}/test_hostile.py::test_lengths_that_cannot_be_close_the_connection_and_take_no_room",
        f"{LIVE}/test_hostile.py::test_half_open_connections_by_the_hundred_are_closed_in_time",
    ],
    "floods of connections and of bogus tokens": [
        f"{LIVE}/test_lockout.py::test_a_flood_from_one_address_is_shut_out_and_another_address_is_served",
        f"{LIVE}/test_lockout.py::test_a_flood_of_forged_tokens_ends_the_connection_and_an_expired_one_does_not",
    ],
    "slow consumers": [f"{LIVE}/test_slow_consumers.py::test_who_is_too_slow_loses_the_oldest_and_is_told_how_many"],
    "a log or an explanation that shows secrets": [f"{SECURITY}/test_canary.py::test_nobody_sees_a_secret"],
    "an address of a service that is learnt by asking for everything": [
        "tests/engine/test_addressed_events.py::test_only_who_names_the_address_gets_what_is_said_to_it",
        "tests/engine/test_addressed_events.py::test_an_address_cannot_be_asked_for_by_guessing",
    ],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_every_attack_has_its_tests(attack: str) -> None:
    for test in ATTACKS[attack]:
        path, _, name = test.partition("::")
        found = {one.name for one in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(one, ast.FunctionDef)}
        assert name in found, f"{test} is gone, and with it what shows that this is refused: {attack}"
