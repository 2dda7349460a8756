"""Migrations (asynchronous): each attempt to move a VM, with its assignments before and after."""

from collections.abc import AsyncIterator

from berth_client import methods
from berth_client._async.calls import AsyncCalls
from berth_client._async.operation import AsyncOperation
from berth_client._ids import resource
from berth_client.proto.conductor.v1 import conductor_service_pb2
from berth_client.proto.scheduler.v1 import scheduler_service_pb2 as wire
from berth_client.proto.scheduler.v1.migration_pb2 import Migration

_CONDUCTOR = methods.ConductorService
_SCHEDULER = methods.SchedulerService


class AsyncMigrations:
    """The migrations of a cluster."""

    def __init__(self, calls: AsyncCalls) -> None:
        """Makes the group of a client."""
        self._calls = calls

    async def show(self, name: str) -> Migration:
        """Returns a migration."""
        request = wire.GetMigrationRequest(name=resource("migrations", name))
        return (await self._calls.unary(_SCHEDULER.GetMigration, request)).migration

    async def list(
        self, *, vm: str = "", filter: str = "", page_size: int = 0
    ) -> AsyncIterator[Migration]:
        """Yields all migrations, those of a VM, or those that meet a filter.

        They are in the order of their names. The filter is an expression such as
        `state = FAILED`; `docs/filters.md` has the language.
        """
        request = wire.ListMigrationsRequest(
            vm=resource("vms", vm), filter=filter, page_size=page_size
        )
        while True:
            page = await self._calls.unary(_SCHEDULER.ListMigrations, request)
            for migration in page.migrations:
                yield migration
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def watch(
        self, name: str
    ) -> AsyncIterator[conductor_service_pb2.WatchMigrationResponse]:
        """Yields a migration with the progress of its transfer, about every second, until it ends.

        Raises `Unavailable` with the reason `STREAM_BROKEN` if its conductor is lost.
        """
        request = conductor_service_pb2.WatchMigrationRequest(name=resource("migrations", name))
        async for state in self._calls.stream(_CONDUCTOR.WatchMigration, request):
            yield state

    async def abort(
        self, name: str, *, request_id: str | None = None, timeout: float | None = None
    ) -> AsyncOperation:
        """Requests that a migration is aborted, and returns its operation: wait for that."""
        request = conductor_service_pb2.AbortMigrationRequest(name=resource("migrations", name))
        answer = await self._calls.unary(
            _CONDUCTOR.AbortMigration, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    async def force_complete(
        self, name: str, *, request_id: str | None = None, timeout: float | None = None
    ) -> AsyncOperation:
        """Requests that a transfer ends soon, by post-copy or by pausing the guest."""
        request = conductor_service_pb2.ForceCompleteMigrationRequest(
            name=resource("migrations", name)
        )
        answer = await self._calls.unary(
            _CONDUCTOR.ForceCompleteMigration, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)
