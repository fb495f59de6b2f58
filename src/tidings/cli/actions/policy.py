"""The commands of `tidings policy`: check a policy, try it on a journal, and apply it at a broker."""

import base64
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

from tidings.cli.actions.history import JournalSpan, json_value, print_table, spark_journal
from tidings.cli.connection import BrokerConnection
from tidings.cli.output import out, print_json
from tidings.model.limits import MAX_POLICY_XML_BYTES
from tidings.policy import Policy
from tidings.policy.lint import findings
from tidings.policy.placement import PolicyPlace, check_placement
from tidings.policy.policy import decode_policy, read_policy


class PolicyTarget(StrEnum):
    """The kind of message that a policy is attached to."""

    PUBLICATION = "publication"
    SUBSCRIPTION = "subscription"
    ADVERTISEMENT = "advertisement"
    UNSUBSCRIPTION = "unsubscription"
    UNADVERTISEMENT = "unadvertisement"

    @property
    def place(self) -> PolicyPlace:
        """The policy place for a policy attached to this kind of message."""
        return PolicyPlace[f"ATTACHED_TO_{self.name}"]


def check(path: Path, on: PolicyTarget | None, *, hub: bool, xml: bool, as_json: bool) -> None:
    """Print a policy in canonical form, the messages that it may be attached to, and the findings of the linter.

    Args:
        path: The policy, as text or XML; `-` is standard input.
        on: Also check the policy for this kind of message.
        hub: Check for a hub, where no message goes from broker to broker.
        xml: Print the policy as XML.
        as_json: Print JSON.
    """
    policy = read(path)
    targets = [target for target in PolicyTarget if _may_attach(policy, target)]
    lint_findings = findings(policy)
    if on is not None:
        lint_findings += check_placement(policy, on.place, hub=hub)
    text = policy.to_xml() if xml else str(policy)
    if as_json:
        print_json(
            {
                "policy": text,
                "with": [str(target) for target in targets],
                "findings": [str(finding) for finding in lint_findings],
            }
        )
        return
    out.print(text, markup=False, soft_wrap=True)
    out.print(
        f"may be given with: {', '.join(targets) or 'nothing; its rules are for different messages'}", markup=False
    )
    for finding in lint_findings:
        out.print(str(finding), markup=False, soft_wrap=True)


def apply(caller: BrokerConnection, path: Path, to: str, *, as_json: bool) -> None:
    """Set a policy on a subscription or an advertisement, as its owner or as an operator; both policies apply.

    Args:
        caller: The connection to the broker.
        path: The policy, as text or XML; `-` is standard input.
        to: The id of the subscription or advertisement.
        as_json: Print JSON.
    """
    policy = read(path)
    with caller.connect() as client:
        lint_findings, broker = client.set_policy(to, policy), client.broker
    if as_json:
        print_json({"id": to, "policy": str(policy), "findings": lint_findings})
        return
    out.print(f"applied the policy to {to}, at {broker}", markup=False, soft_wrap=True)
    for finding in lint_findings:
        out.print(finding, markup=False, soft_wrap=True)


def remove(caller: BrokerConnection, to: str, *, as_json: bool) -> None:
    """Remove the policy that this client set on a subscription or an advertisement."""
    with caller.connect() as client:
        client.set_policy(to, None)
        broker = client.broker
    if as_json:
        print_json({"id": to, "policy": None, "findings": []})
    else:
        out.print(f"removed the policy from {to}, at {broker}", markup=False, soft_wrap=True)


def _may_attach(policy: Policy, on: PolicyTarget) -> bool:
    """Return whether the policy may be attached to this kind of message."""
    try:
        check_placement(policy, on.place)
    except ValueError:
        return False
    return True


def read(path: Path) -> Policy:
    """Read a policy from a file, or from standard input if the path is `-`."""
    if str(path) == "-":
        return decode_policy(sys.stdin.buffer.read(MAX_POLICY_XML_BYTES + 1), path)
    return read_policy(path)


_COUNTS = ("before", "after", "lost", "gained", "altered")
_MOST = 50  # rows of subscriptions in the table


def try_on_journal(
    path: Path, span: JournalSpan, on: str | None, *, as_owner: bool, examples: int, as_json: bool
) -> None:
    """Try a policy on a journal, and print which notifications would have been lost, gained or altered, with examples.

    Args:
        path: The policy, as text or XML; `-` is standard input.
        span: The journal and the time span.
        on: The id of a subscription or an advertisement; None: the policy applies to all messages.
        as_owner: Replace the owner's policy, instead of adding an operator's.
        examples: How many examples of each kind of change to print.
        as_json: Print JSON.
    """
    policy = read(path)
    from tidings.spark import try_policy

    with spark_journal(span, 2) as (journal, step):
        step("retracing, as it was and with the policy")
        trial = try_policy(journal, policy, on, as_owner=as_owner)
        trial.compared.cache()
        try:
            per_subscription = trial.per_subscription
            totals = per_subscription.agg(dict.fromkeys(_COUNTS, "sum")).first()
            changed = per_subscription.where("lost + gained + altered > 0").orderBy("subscription_id").limit(_MOST)
            rows = [row.asDict() for row in changed.collect()]
            step("looking for examples")
            example_rows = [row.asDict() for row in trial.examples(examples).collect()] if examples else []
        finally:
            trial.compared.unpersist()
    total = {name: totals[f"sum({name})"] or 0 for name in _COUNTS}
    if as_json:
        json_examples = [
            {name: _encode_payload(value) for name, value in json_value(row).items()} for row in example_rows
        ]
        print_json({"journal": span.reader.name, **total, "subscriptions": rows, "examples": json_examples})
        return
    print_table(
        [{"subscription": "all", "subscriber": "", **total}, *map(_with_subscription, rows)],
        ("subscription", "subscriber", *_COUNTS),
    )
    for row in example_rows:
        _print_example(row)


def _with_subscription(row: dict[str, Any]) -> dict[str, Any]:
    return {"subscription": row["subscription_id"], **row}


def _print_example(row: dict[str, Any]) -> None:
    out.print()
    out.print(f"{row['change']}: {row['event_id']} to {row['subscription_id']}", markup=False, soft_wrap=True)
    for side in ("before", "after"):
        if row[side] is not None:
            payload = row[f"payload_{side}"]
            more = "" if payload is None else f" and {len(payload)} bytes"
            out.print(f"  {side:<6} {row[side]}{more}", markup=False, soft_wrap=True)


def _encode_payload(value: Any) -> Any:
    """Return a payload in Base64, since JSON has no bytes, and any other value as it is."""
    return base64.b64encode(bytes(value)).decode() if isinstance(value, bytes | bytearray) else value
