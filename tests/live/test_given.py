"""An event that comes by several ways is given to a durable subscription once."""

from uuid import UUID

from tidings.hub.backlog import Backlog
from tidings.live.given import Given
from tidings.model.event import Event
from tidings.model.notification import Notification
from tidings.model.values import Attributes

_FIRST, _SECOND = (UUID(int=(7 << 76) + (2 << 62) + number) for number in (1, 2))


def _note(event: UUID) -> Notification:
    made = Event(id=event, publisher="p", timestamp=1, sequence=1, attributes=Attributes({"n": 1}))
    return Notification(event=made, subscription="s", subscriber="c", attributes=made.attributes, payload=None)


def test_an_inbox_is_given_an_event_once_and_another_one_too() -> None:
    given, one, other = Given(), Backlog(10, None), Backlog(10, None)
    assert given.note(one, _FIRST)
    assert not given.note(one, _FIRST)
    assert given.note(one, _SECOND)
    assert given.note(other, _FIRST)


def test_what_has_come_twice_into_a_backlog_keeps_its_place_and_is_acknowledged_once() -> None:
    backlog = Backlog(10, None)
    for offset, event in enumerate((_FIRST, _SECOND, _FIRST)):
        backlog.expect(offset)
        backlog.put(_note(event), offset)
    assert [note.event.id for note in backlog.take()] == [_FIRST, _SECOND]
    backlog.redeliver()
    assert [note.event.id for note in backlog.take()] == [_FIRST, _SECOND]
    done = backlog.acknowledgement([_FIRST, _SECOND])
    assert done is not None
    backlog.acknowledge(done)
    assert backlog.state()[3] == backlog.waiting == 0
