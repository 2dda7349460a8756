"""Flavors (asynchronous): the named sizes and requirements of guests."""

from collections.abc import AsyncIterator, Mapping

from berth_client import methods
from berth_client._async.calls import AsyncCalls
from berth_client._ids import resource
from berth_client.proto.scheduler.v1 import scheduler_service_pb2 as wire
from berth_client.proto.type.v1.flavor_pb2 import Flavor

_SCHEDULER = methods.SchedulerService


class AsyncFlavors:
    """The flavors of a cluster."""

    def __init__(self, calls: AsyncCalls) -> None:
        """Makes the group of a client."""
        self._calls = calls

    async def create(
        self,
        name: str,
        *,
        vcpus: int,
        memory_mib: int,
        disk_gib: int = 0,
        extra_specs: Mapping[str, str] | None = None,
        project: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Flavor:
        """Creates a flavor, which then never changes, and returns it."""
        flavor = Flavor(
            name=resource("flavors", name),
            vcpus=vcpus,
            memory_mib=memory_mib,
            disk_gib=disk_gib,
            extra_specs=dict(extra_specs or {}),
            project=project,
        )
        request = wire.CreateFlavorRequest(flavor=flavor)
        answer = await self._calls.unary(
            _SCHEDULER.CreateFlavor, request, timeout=timeout, request_id=request_id
        )
        return answer.flavor

    async def show(self, name: str) -> Flavor:
        """Returns a flavor."""
        request = wire.GetFlavorRequest(name=resource("flavors", name))
        return (await self._calls.unary(_SCHEDULER.GetFlavor, request)).flavor

    async def list(self, *, filter: str = "", page_size: int = 0) -> AsyncIterator[Flavor]:
        """Yields all flavors, or those that meet a filter, in the order of their names.

        The filter is an expression such as `vcpus >= 4`; `docs/filters.md` has the language.
        """
        request = wire.ListFlavorsRequest(filter=filter, page_size=page_size)
        while True:
            page = await self._calls.unary(_SCHEDULER.ListFlavors, request)
            for flavor in page.flavors:
                yield flavor
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def delete(
        self, name: str, *, request_id: str | None = None, timeout: float | None = None
    ) -> None:
        """Deletes a flavor. VMs that were made of it keep their copies."""
        request = wire.DeleteFlavorRequest(name=resource("flavors", name))
        await self._calls.unary(
            _SCHEDULER.DeleteFlavor, request, timeout=timeout, request_id=request_id
        )
