"""Inheritance: how rules of advertisements become rules of the messages that meet them, where those enter."""

import msgspec

from tidings.engine.compiling import compiled_rules
from tidings.engine.message import Message
from tidings.engine.refusal import Refused
from tidings.engine.ruled import Ruling
from tidings.model.limits import MAX_POLICY_RULES
from tidings.policy.statement import Attach, Rule


def inherit(message: Message, handed_down: list[Ruling]) -> None:
    """Attaches what advertisements hand down, as `@attach` and `@yield_attach` say; equal rules once.

    'Existing' are the rules that the message brought along itself, with the same `On(...)`.
    """
    if not handed_down:
        return
    brought = () if message.attached is None else message.attached.policy.rules
    kept, attached = list(brought), list[Rule]()
    for compiled, _ in handed_down:
        rule = compiled.rule
        existing = [one for one in brought if one.heading == rule.heading]
        if rule.attach is Attach.KEEP_EXISTING and existing:
            continue
        if rule.attach is Attach.IF_YIELD and any(not one.yield_attach for one in existing):
            continue
        kept = [one for one in kept if one not in existing]
        here = msgspec.structs.replace(rule, attach=Attach.NEVER)  # it is attached now
        if here not in attached:
            attached.append(here)
    if len(kept) + len(attached) > MAX_POLICY_RULES:
        raise Refused("govern", f"the message would inherit more than MAX_POLICY_RULES ({MAX_POLICY_RULES}) rules")
    if attached:
        message.attached = compiled_rules((*kept, *attached))
