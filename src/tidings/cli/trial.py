"""`tidings policy try`: a policy, tried on what was journaled."""

import base64
from pathlib import Path
from typing import Any

from tidings.cli.history import Span, asking, plain, print_table
from tidings.cli.policy import read
from tidings.cli.terminal import out, print_json

_COUNTS = ("before", "after", "lost", "gained", "altered")
_MOST = 50  # subscriptions in the table


def show(path: Path, span: Span, on: str | None, *, as_owner: bool, examples: int, as_json: bool) -> None:
    """Counts in all and by subscription, and a few examples of each kind of change."""
    policy = read(path)
    from tidings.spark import try_policy

    with asking(span, 2) as (journal, step):
        step("retracing, as it was and with the policy")
        trial = try_policy(journal, policy, on, as_owner=as_owner)
        trial.compared.cache()
        try:
            counted = trial.per_subscription
            totals = counted.agg(dict.fromkeys(_COUNTS, "sum")).first()
            changed = counted.where("lost + gained + altered > 0").orderBy("subscription_id").limit(_MOST)
            rows = [row.asDict() for row in changed.collect()]
            step("looking for examples")
            found = [row.asDict() for row in trial.examples(examples).collect()] if examples else []
        finally:
            trial.compared.unpersist()
    total = {name: totals[f"sum({name})"] or 0 for name in _COUNTS}
    if as_json:
        shown = [{name: _text(value) for name, value in plain(one).items()} for one in found]
        print_json({"journal": span.reader.name, **total, "subscriptions": rows, "examples": shown})
        return
    print_table(
        [{"subscription": "all", "subscriber": "", **total}, *map(_named, rows)],
        ("subscription", "subscriber", *_COUNTS),
    )
    for one in found:
        _print_example(one)


def _named(row: dict[str, Any]) -> dict[str, Any]:
    return {"subscription": row["subscription_id"], **row}


def _print_example(one: dict[str, Any]) -> None:
    out.print()
    out.print(f"{one['change']}: {one['event_id']} to {one['subscription_id']}", markup=False, soft_wrap=True)
    for side in ("before", "after"):
        if one[side] is not None:
            payload = one[f"payload_{side}"]
            more = "" if payload is None else f" and {len(payload)} bytes"
            out.print(f"  {side:<6} {one[side]}{more}", markup=False, soft_wrap=True)


def _text(value: Any) -> Any:
    """Payloads in base64, as JSON has no bytes."""
    return base64.b64encode(bytes(value)).decode() if isinstance(value, bytes | bytearray) else value
