"""Events (asynchronous): every change of every record, without gaps, whichever member is lost."""

from collections.abc import AsyncIterator, Iterable

from berth_client import methods
from berth_client._async.calls import AsyncCalls
from berth_client._ids import resource
from berth_client.changes import Change, change_of
from berth_client.errors import Unavailable
from berth_client.proto.event.v1 import event_service_pb2 as wire

_Phase = wire.WatchResponse.Phase


class AsyncEvents:
    """The changes of a cluster."""

    def __init__(self, calls: AsyncCalls) -> None:
        """Makes the group of a client."""
        self._calls = calls

    async def watch(
        self,
        kinds: Iterable[str] = (),
        *,
        names: Iterable[str] = (),
        after_revision: int = 0,
    ) -> AsyncIterator[Change]:
        """Yields the records as they are, and then every change of them, without an end.

        `kinds` are as in `Change.kind`, by default all but `AUDIT`; `names` are as `vms/a`. With
        `after_revision` it yields what changed after that, and no records as they are. A watch that
        breaks off goes on at another member where it was; nothing is omitted or sent twice. Only
        a record of the snapshot may be sent again, if the watch breaks off within it.

        Raises `OutOfRange` if changes after the revision are no longer kept: begin without one.
        Raises `Unavailable` once no scheduler answers for as long as a call may take.
        """
        request = wire.WatchRequest(
            kinds=[wire.Kind.Value(f"KIND_{kind.upper()}") for kind in kinds],
            names=list(names),
            after_revision=after_revision,
        )
        # What was sent since the last revision that is complete; and of a snapshot that is not.
        sent = skipped = 0
        partial, again = dict[tuple[str, str], None](), dict[tuple[str, str], None]()
        while True:
            # One that breaks off again may not have come as far as the one before.
            skipped, sent, again = max(sent, skipped), 0, {**again, **partial}
            partial = {}
            responses = self._calls.stream(methods.EventService.Watch, request)
            try:
                async for response in responses:
                    is_snapshot = response.phase == _Phase.PHASE_SNAPSHOT
                    for event in response.events:
                        if not is_snapshot:
                            sent += 1
                            if sent <= skipped:
                                continue
                        change = change_of(event, is_snapshot, request.after_revision)
                        if is_snapshot:
                            partial[(change.kind, change.name)] = None
                        yield change
                    if response.phase == _Phase.PHASE_IN_STEP:
                        # Sent by a snapshot that broke off, and deleted before the next one.
                        for kind, name in again.keys() - partial.keys():
                            yield Change(response.revision, kind, name, None, True, 0)
                        partial, again = {}, {}
                    if response.revision > request.after_revision:
                        request.after_revision = response.revision
                        sent = skipped = 0
            except Unavailable as lost:
                if lost.reason in ("SCHEDULER_UNREACHABLE", "NO_LEADER"):
                    raise
                self._calls.move_on()

    async def history(
        self, name: str, *, after_revision: int = 0
    ) -> AsyncIterator[wire.HistoryEntry]:
        """Yields what became of a VM or of a host, as `vms/a`, and by which commands."""
        request = wire.GetHistoryRequest(
            name=name if "/" in name else resource("vms", name), after_revision=after_revision
        )
        async for response in self._calls.stream(methods.EventService.GetHistory, request):
            for entry in response.entries:
                yield entry
