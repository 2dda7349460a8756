"""A watch that breaks off anywhere is continued without a gap, and nothing is sent twice.

Method: streams that are written down instead of a server. Each of them breaks off after each of its
messages in turn, and the next one is what a member would send then.
"""

from collections.abc import Iterator

import pytest
from berth_client._sync.events import Events
from berth_client.proto.event.v1 import event_service_pb2 as wire

from berth_client import Unavailable
from berth_client.errors import Refusal

_Phase = wire.WatchResponse.Phase
BROKEN = Unavailable(Refusal("UNAVAILABLE", "STREAM_BROKEN", "it broke"))
GONE = Unavailable(Refusal("UNAVAILABLE", "SCHEDULER_UNREACHABLE", "no scheduler answers"))


def event(revision: int, name: str, is_there: bool = True) -> wire.Event:
    made = wire.Event(revision=revision, kind=wire.KIND_VM, name=name)
    if is_there:
        made.put.vm.name = name
    else:
        made.deleted.SetInParent()
    return made


def response(phase: _Phase.ValueType, revision: int, *events: wire.Event) -> wire.WatchResponse:
    return wire.WatchResponse(phase=phase, revision=revision, events=events)


def snapshot(revision: int, *names: str) -> list[wire.WatchResponse]:
    """Returns a snapshot of these records, one in each message, and its end."""
    parts = [response(_Phase.PHASE_SNAPSHOT, 0, event(revision, name)) for name in names]
    return [*parts, response(_Phase.PHASE_IN_STEP, revision)]


def changes(after: int) -> list[wire.WatchResponse]:
    """Returns what has changed after a revision: that of revision 11 takes three messages."""
    big = [response(_Phase.PHASE_CHANGES, 10, event(11, f"vms/{name}")) for name in "xy"]
    big.append(response(_Phase.PHASE_CHANGES, 11, event(11, "vms/z")))
    later = [
        response(_Phase.PHASE_CHANGES, 12, event(12, "vms/x", False)),
        response(_Phase.PHASE_PROGRESS, 20),
        response(_Phase.PHASE_CHANGES, 21, event(21, "vms/y"), event(21, "vms/z", False)),
    ]
    return [*(big if after < 11 else []), *(one for one in later if one.revision > after)]


class Streams:
    """Stands for the calls of a client: streams that break off where the test says."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = list(lengths)
        self.requested: list[int] = []

    def stream(self, method: object, request: wire.WatchRequest) -> Iterator[wire.WatchResponse]:
        self.requested.append(request.after_revision)
        if not self.lengths:
            raise GONE
        # The record `b` is deleted once the first stream has broken off.
        names = ("vms/a", "vms/b") if len(self.requested) == 1 else ("vms/a",)
        after = request.after_revision
        all_of_it = changes(after) if after else [*snapshot(10, *names), *changes(10)]
        for count, one in enumerate(all_of_it):
            if count == self.lengths[0]:
                break
            yield one
        self.lengths.pop(0)
        raise BROKEN

    def move_on(self) -> None:
        """Has nothing to do."""


def watched(*lengths: int) -> list[tuple[int, str, bool, bool]]:
    """Returns what a watch yields whose streams have so many messages."""
    seen = []
    with pytest.raises(Unavailable) as raised:
        for change in Events(Streams(*lengths)).watch():  # type: ignore[arg-type]
            is_there = change.record is not None
            seen.append((change.revision, change.name, is_there, change.is_snapshot))
    assert raised.value is GONE
    return seen


CHANGES = [
    (11, "vms/x", True, False), (11, "vms/y", True, False), (11, "vms/z", True, False),
    (12, "vms/x", False, False), (21, "vms/y", True, False), (21, "vms/z", False, False),
]
A, B = (10, "vms/a", True, True), (10, "vms/b", True, True)
B_GONE = (10, "vms/b", False, True)
WHOLE = 99


def test_a_watch_that_does_not_break_off_has_all() -> None:
    assert watched(WHOLE) == [A, B, *CHANGES]


@pytest.mark.parametrize("second", range(10))
@pytest.mark.parametrize("first", range(10))
def test_nothing_is_omitted_or_sent_twice(first: int, second: int) -> None:
    seen = watched(first, second, WHOLE)
    assert [one for one in seen if not one[3]] == CHANGES
    begun = [one for one in seen if one[3]]
    # A record of the snapshot may be sent again, as long as none was complete.
    state = dict.fromkeys([name for _, name, _, _ in begun], False)
    for _, name, is_there, _ in begun:
        state[name] = is_there
    # `b` is deleted once the first stream has broken off: after its snapshot that is a change.
    is_complete = first > 2
    assert state == ({"vms/a": True, "vms/b": True} if is_complete else {
        name: name == "vms/a" for name in state
    })
    if first == 2:
        assert B_GONE in begun and begun.index(B) < begun.index(B_GONE)
    if is_complete:
        assert begun == [A, B]
