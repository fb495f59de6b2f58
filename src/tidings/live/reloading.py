"""Reloading: a running broker takes another configuration over, as far as that needs no restart."""

from typing import TYPE_CHECKING

from tidings.live.configuration import Change, Configuration
from tidings.live.gatehouse import read_files
from tidings.live.own import put_own
from tidings.live.trusting import groups_of

if TYPE_CHECKING:
    from tidings.live.broker import Broker


async def reload(broker: "Broker", wanted: Configuration) -> Change:
    """What was taken over, and what must wait for a restart. Certificates, lists of revocations and topic records are
    read anew in any case: if something is wrong with them, an error says so, and all stays as it is."""
    former = broker.configuration
    change = former.changes(wanted)
    groups = groups_of(wanted)
    if broker.gatehouse is not None:
        broker.gatehouse.begin(read_files(wanted.security))
    if broker.certificates is not None:
        broker.certificates.reload()
    broker.trusting.reload(groups)
    broker.configuration = given = former.taking_over(wanted)
    desk = broker.desk
    with desk.guard:
        desk.settings = desk.engine.settings = broker.engine_settings(given)
    if given.limits != former.limits:
        broker.reception.limit(given.limits)
        for session in broker.all_sessions():
            session.limit(given.limits)
    put_own(desk, given, former)
    if broker.gatehouse is not None:
        broker.gatehouse.set(given.security)
    if "links" in change.taken_over:
        await _change_links(broker, former, given)
    broker.flush()
    return change


async def _change_links(broker: "Broker", former: Configuration, given: Configuration) -> None:
    """Links that are named no more, or otherwise, are closed; what is named now is called."""
    wanted = {one.broker: one for one in given.links}
    for one in former.links:
        if wanted.get(one.broker) != one:
            await broker.neighbourhood.hang_up(one.broker)
    broker.neighbourhood.dial()
