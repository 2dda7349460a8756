"""The cluster (asynchronous): its members and conductors."""

from berth_client import methods
from berth_client._async.calls import AsyncCalls
from berth_client.proto.cluster.v1 import cluster_pb2
from berth_client.proto.cluster.v1 import cluster_service_pb2 as wire


class AsyncCluster:
    """The schedulers and conductors of a cluster."""

    def __init__(self, calls: AsyncCalls) -> None:
        """Makes the group of a client."""
        self._calls = calls

    async def status(self) -> wire.GetClusterStatusResponse:
        """Returns the cluster as one scheduler sees it: the leader, if it is known."""
        request = wire.GetClusterStatusRequest()
        return await self._calls.unary(methods.ClusterService.GetClusterStatus, request)

    async def conductors(self) -> list[cluster_pb2.Service]:
        """Returns the conductors that have registered."""
        request = wire.ListServicesRequest()
        answer = await self._calls.unary(methods.ClusterService.ListServices, request)
        return list(answer.services)
