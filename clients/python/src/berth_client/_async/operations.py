"""Operations (asynchronous): what takes time, and goes on without the program that began it."""

from collections.abc import AsyncIterator

from berth_client import methods
from berth_client._async.calls import AsyncCalls
from berth_client._async.operation import AsyncOperation, request_name
from berth_client._ids import resource
from berth_client.proto.operation.v1 import operation_service_pb2 as wire

_OPERATIONS = methods.OperationService


class AsyncOperations:
    """The operations of a cluster."""

    def __init__(self, calls: AsyncCalls) -> None:
        """Makes the group of a client."""
        self._calls = calls

    async def get(self, name: str) -> AsyncOperation:
        """Returns an operation: to wait for it, to follow it, or to cancel it."""
        request = wire.GetOperationRequest(name=request_name(name))
        answer = await self._calls.unary(_OPERATIONS.GetOperation, request)
        return AsyncOperation(self._calls, answer.operation)

    async def list(
        self, *, vm: str = "", running: bool = False, filter: str = "", page_size: int = 0
    ) -> AsyncIterator[AsyncOperation]:
        """Yields all operations, of a VM, or of those that run, or that meet a filter.

        The filter is an expression such as `failed.reason = NO_VALID_HOST`; `docs/filters.md` has
        the language.
        """
        request = wire.ListOperationsRequest(
            vm=resource("vms", vm), running_only=running, filter=filter, page_size=page_size
        )
        while True:
            page = await self._calls.unary(_OPERATIONS.ListOperations, request)
            for operation in page.operations:
                yield AsyncOperation(self._calls, operation)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def wait(self, name: str, timeout: float | None = None) -> AsyncOperation:
        """Waits until an operation has ended, as its `wait` does, and returns it."""
        operation = await self.get(name)
        return await operation.wait(timeout)

    async def cancel(self, name: str, *, request_id: str | None = None) -> AsyncOperation:
        """Requests the cancellation of an operation, and returns it."""
        request = wire.CancelOperationRequest(name=request_name(name))
        answer = await self._calls.unary(
            _OPERATIONS.CancelOperation, request, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)
