"""Hosts (asynchronous): listed, shown, cordoned, drained, removed."""

from collections.abc import AsyncIterator

from berth_client import methods
from berth_client._async.calls import AsyncCalls
from berth_client._async.operation import AsyncOperation
from berth_client._ids import new_request_id, resource
from berth_client.errors import OutcomeUnknown
from berth_client.proto.conductor.v1 import conductor_service_pb2
from berth_client.proto.host.v1 import host_service_pb2 as wire
from berth_client.proto.host.v1.host_pb2 import Host
from berth_client.proto.operation.v1 import operation_pb2
from berth_client.proto.scheduler.v1 import move_service_pb2

_HOSTS = methods.HostService


class AsyncHosts:
    """The hosts of a cluster."""

    def __init__(self, calls: AsyncCalls) -> None:
        """Makes the group of a client."""
        self._calls = calls

    async def list(
        self, *, filter: str = "", page_size: int = 0
    ) -> AsyncIterator[wire.HostSummary]:
        """Yields all hosts, or those that meet a filter, with what is taken of them.

        They are in the order of their names. The filter is an expression such as
        `host.cordoned = true`; `docs/filters.md` has the language.
        """
        request = wire.ListHostsRequest(filter=filter, page_size=page_size)
        while True:
            page = await self._calls.unary(_HOSTS.ListHosts, request)
            for host in page.hosts:
                yield host
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def show(self, name: str) -> wire.GetHostResponse:
        """Returns a host with its claims and what they take."""
        request = wire.GetHostRequest(name=resource("hosts", name))
        return await self._calls.unary(_HOSTS.GetHost, request)

    async def cordon(
        self, name: str, *, request_id: str | None = None, timeout: float | None = None
    ) -> Host:
        """Closes a host to new guests, and returns it."""
        request = wire.CordonHostRequest(name=resource("hosts", name))
        answer = await self._calls.unary(
            _HOSTS.CordonHost, request, timeout=timeout, request_id=request_id
        )
        return answer.host

    async def uncordon(
        self, name: str, *, request_id: str | None = None, timeout: float | None = None
    ) -> Host:
        """Opens a host to new guests, and returns it."""
        request = wire.UncordonHostRequest(name=resource("hosts", name))
        answer = await self._calls.unary(
            _HOSTS.UncordonHost, request, timeout=timeout, request_id=request_id
        )
        return answer.host

    async def remove(
        self, name: str, *, request_id: str | None = None, timeout: float | None = None
    ) -> None:
        """Removes the record of a host without guests."""
        request = wire.RemoveHostRequest(name=resource("hosts", name))
        await self._calls.unary(
            _HOSTS.RemoveHost, request, timeout=timeout, request_id=request_id
        )

    async def plan_drain(
        self, name: str, *, evacuate: bool = False, cold: bool = False
    ) -> move_service_pb2.PlanDrainResponse:
        """Returns where the VMs of a host would go if it was drained now."""
        request = move_service_pb2.PlanDrainRequest(
            host=resource("hosts", name), evacuate=evacuate, cold=cold
        )
        return await self._calls.unary(methods.MoveService.PlanDrain, request)

    async def drain(
        self,
        name: str,
        *,
        evacuate: bool = False,
        cold: bool = False,
        parallel_max: int = 0,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Closes a host to new guests and moves its VMs away; returns once that has begun.

        With `cold`, VMs that cannot be moved while they run are stopped, moved and started. With
        `evacuate`, the host is dead, and its VMs are started elsewhere.
        """
        key = request_id or new_request_id()
        request = conductor_service_pb2.DrainHostRequest(
            host=resource("hosts", name),
            evacuate=evacuate,
            cold=cold,
            parallel_max=parallel_max,
            no_wait=True,
            request_id=key,
        )
        now = self._calls.transport.now
        until = now() + (self._calls.settings.timeout if timeout is None else timeout)
        while True:
            try:
                begun = await self._begin_drain(request, until - now())
                return AsyncOperation(self._calls, operation_pb2.Operation(name=begun))
            except OutcomeUnknown:
                # The stream may have broken between the plan and what has begun.
                if now() >= until:
                    raise

    async def _begin_drain(
        self, request: conductor_service_pb2.DrainHostRequest, timeout: float
    ) -> str:
        events = self._calls.stream(
            methods.ConductorService.DrainHost, request, timeout=max(timeout, 0.001)
        )
        begun = ""
        async for event in events:
            if event.HasField("cordoned"):
                begun = event.cordoned.operation
        return begun

    async def fence(
        self, name: str, *, request_id: str | None = None, timeout: float | None = None
    ) -> Host:
        """Has a conductor run its fence command for a host, and returns the host."""
        request = conductor_service_pb2.FenceHostRequest(name=resource("hosts", name))
        answer = await self._calls.unary(
            methods.ConductorService.FenceHost, request, timeout=timeout, request_id=request_id
        )
        return answer.host
