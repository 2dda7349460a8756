"""An operation that has begun (asynchronous): waited for, followed, cancelled.

Invariant: an operation does not depend on this object. It goes on if the program ends.
"""

from collections.abc import AsyncIterator, Generator
from typing import Any

from berth_client import methods
from berth_client._async.calls import AsyncCalls
from berth_client._ids import resource, short
from berth_client._status import refusal_of_wire
from berth_client.errors import (
    OUTCOME_UNKNOWN,
    OperationFailed,
    OutcomeUnknown,
    Refusal,
    Unavailable,
    WaitTimeout,
)
from berth_client.proto.operation.v1 import operation_pb2, operation_service_pb2

# How long one call waits, in seconds: then it is repeated.
_WAIT = 10.0
# How long an answer may take beyond the time that it waits, in seconds.
_GRACE = 0.5


class AsyncOperation:
    """An operation, as `operations.get`, `vms.create` and others return it."""

    def __init__(self, calls: AsyncCalls, message: operation_pb2.Operation) -> None:
        """Makes the object of an operation, as it was last seen."""
        self._calls = calls
        self._message = message

    @property
    def name(self) -> str:
        """Its id, without `operations/`."""
        return short(self._message.name)

    @property
    def vm(self) -> str:
        """The VM that it works on, without `vms/`; empty for a drain."""
        return short(self._message.vm)

    @property
    def kind(self) -> str:
        """What it does, as `boot` or `live_migrate`."""
        return self._message.WhichOneof("kind") or ""

    @property
    def message(self) -> operation_pb2.Operation:
        """The operation as it was last seen, with the log of its steps."""
        return self._message

    @property
    def is_done(self) -> bool:
        """Whether it had ended when it was last seen."""
        return self._message.done

    @property
    def migration(self) -> str:
        """The id of its migration, for `migrations.show`; empty where there is none."""
        kind = self._message.WhichOneof("kind")
        about = getattr(self._message, kind) if kind else None
        return short(getattr(about, "migration", ""))

    def __repr__(self) -> str:
        """Returns what it does, and whether it has ended."""
        state = "done" if self.is_done else "running"
        return f"<{type(self).__name__} {self.kind} {self.vm} {self.name} {state}>"

    async def refresh(self) -> "AsyncOperation":
        """Reads it again, and returns itself."""
        request = operation_service_pb2.GetOperationRequest(name=self._message.name)
        answer = await self._calls.unary(methods.OperationService.GetOperation, request)
        self._message = answer.operation
        return self

    async def wait(self, timeout: float | None = None) -> "AsyncOperation":
        """Waits until it has ended, and returns itself.

        Raises `OperationFailed` if it has failed, `WaitTimeout` once so many seconds have passed,
        and `OutcomeUnknown` if no scheduler answers any more. In the last two cases it goes on.
        """
        now = self._calls.transport.now
        until = None if timeout is None else now() + timeout
        while not self._message.done:
            if until is not None and now() >= until:
                raise self._timed_out(timeout or 0)
            await self._wait_once(until)
        self._check()
        return self

    async def progress(
        self, timeout: float | None = None
    ) -> AsyncIterator[operation_pb2.Operation]:
        """Yields it as it is, and again after each change, until it has ended.

        Raises as `wait`, but not if it has failed: its last state shows that.
        """
        now = self._calls.transport.now
        until = None if timeout is None else now() + timeout
        request = operation_service_pb2.WatchOperationRequest(name=self._message.name)
        shown: operation_pb2.Operation | None = None
        while shown is None or not shown.done:
            left = None if until is None else until - now()
            if left is not None and left <= 0:
                raise self._timed_out(timeout or 0)
            watch = methods.OperationService.WatchOperation
            states = self._calls.stream(watch, request, timeout=left)
            try:
                async for response in states:
                    self._message = response.operation
                    # A watch that goes on elsewhere begins with what is known.
                    if shown != response.operation:
                        shown = response.operation
                        yield shown
            except Unavailable as lost:
                if lost.reason in ("SCHEDULER_UNREACHABLE", "NO_LEADER"):
                    raise self._lost(lost) from lost
            except TimeoutError:
                continue

    # async only: begin
    def __await__(self) -> Generator[Any, None, "AsyncOperation"]:
        """Waits without a limit."""
        return self.wait().__await__()

    # async only: end
    def __aiter__(self) -> AsyncIterator[operation_pb2.Operation]:
        """Follows it: see `progress`."""
        return self.progress()

    async def cancel(self, *, request_id: str | None = None) -> "AsyncOperation":
        """Requests its cancellation, and returns itself; `wait` then raises `OperationFailed`.

        It has no effect on an operation that is done.
        """
        request = operation_service_pb2.CancelOperationRequest(name=self._message.name)
        answer = await self._calls.unary(
            methods.OperationService.CancelOperation, request, request_id=request_id
        )
        self._message = answer.operation
        return self

    async def _wait_once(self, until: float | None) -> None:
        now = self._calls.transport.now
        left = _WAIT if until is None else max(until - now(), 0.0)
        seconds = min(left, _WAIT)
        request = operation_service_pb2.WaitOperationRequest(name=self._message.name)
        request.timeout.FromMilliseconds(max(int(seconds * 1000), 1))
        # The call takes as long as it waits, and the attempts that find a server in addition.
        patience = self._calls.settings.timeout if until is None else left - seconds + _GRACE
        try:
            answer = await self._calls.unary(
                methods.OperationService.WaitOperation, request, timeout=seconds + patience
            )
        except Unavailable as lost:
            if until is not None and now() >= until:
                # The loop says so.
                return
            raise self._lost(lost) from lost
        self._message = answer.operation

    def _check(self) -> None:
        if self._message.WhichOneof("outcome") != "failed":
            return
        refusal = refusal_of_wire(self._message.failed)
        metadata = {**refusal.metadata, "operation": self.name}
        raise OperationFailed(
            Refusal(
                refusal.code, refusal.reason, refusal.message, refusal.hint, metadata,
                refusal.causes, refusal.hosts,
            )
        )

    def _timed_out(self, timeout: float) -> WaitTimeout:
        text = f"operation {self.name} has not ended within {timeout:g} s, and goes on"
        return WaitTimeout(
            Refusal(
                "DEADLINE_EXCEEDED", "WAIT_TIMEOUT", text,
                f"wait again, or later: client.operations.get({self.name!r})",
                {"operation": self.name},
            )
        )

    def _lost(self, lost: Unavailable) -> OutcomeUnknown:
        text = f"operation {self.name} has begun, and may go on; {lost.message}"
        return OutcomeUnknown(
            Refusal(
                "UNAVAILABLE", OUTCOME_UNKNOWN, text,
                f"once a scheduler answers: client.operations.get({self.name!r})",
                {"operation": self.name},
            )
        )


def request_name(name: str) -> str:
    """Returns the resource name of an operation."""
    return resource("operations", name)
