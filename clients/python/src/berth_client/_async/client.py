"""The client of a cluster (asynchronous)."""

from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any, TypeVar, overload

from google.protobuf.message import Message

from berth_client import _settings, methods
from berth_client._async.calls import AsyncCalls
from berth_client._async.cluster import AsyncCluster
from berth_client._async.events import AsyncEvents
from berth_client._async.flavors import AsyncFlavors
from berth_client._async.hosts import AsyncHosts
from berth_client._async.migrations import AsyncMigrations
from berth_client._async.operations import AsyncOperations
from berth_client._async.vms import AsyncVms
from berth_client._method import Method, StreamMethod, find
from berth_client._settings import StrPath

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


class AsyncClient:
    """A client of a cluster: finds the leader, follows it, and repeats what may be repeated.

    Close it, or use it in a `with` statement. Without parameters it is set up as the command
    `berth`: by `BERTH_SCHEDULER`, `BERTH_TLS_CA`, `BERTH_TLS_CERT` and `BERTH_TLS_KEY`, and with
    the scheduler at 127.0.0.1:7100.
    """

    def __init__(
        self,
        schedulers: Iterable[str] | str | None = None,
        *,
        ca: StrPath | None = None,
        cert: StrPath | None = None,
        key: StrPath | None = None,
        timeout: float = _settings.TIMEOUT,
        response_bytes_max: int = _settings.RESPONSE_BYTES_MAX,
        cluster_id: str | None = None,
    ) -> None:
        """Makes a client; it connects with its first call.

        `schedulers` are `HOST` or `HOST:PORT` of any members, best of all of them. `ca`, `cert` and
        `key` are files, and go together. `timeout` is how long a call takes at most with all of its
        attempts, in seconds. A longer response than `response_bytes_max` is refused. With
        `cluster_id`, schedulers of another cluster, as of one that was restored, are left out.

        Raises `InvalidArgument` if a parameter is wrong, or a private key readable by others.
        """
        self._calls = AsyncCalls(
            _settings.settings(
                schedulers, ca, cert, key, timeout, response_bytes_max, cluster_id
            )
        )
        self.vms = AsyncVms(self._calls)
        """VMs."""
        self.hosts = AsyncHosts(self._calls)
        """Hosts."""
        self.flavors = AsyncFlavors(self._calls)
        """Flavors."""
        self.operations = AsyncOperations(self._calls)
        """Operations."""
        self.migrations = AsyncMigrations(self._calls)
        """Migrations."""
        self.cluster = AsyncCluster(self._calls)
        """The cluster itself."""
        self.events = AsyncEvents(self._calls)
        """Changes and histories."""

    @property
    def schedulers(self) -> list[str]:
        """The addresses of the schedulers: those that were given, then those that were learnt."""
        return self._calls.schedulers

    @overload
    async def call(
        self,
        method: Method[Q, R],
        request: Q,
        *,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> R: ...

    @overload
    async def call(
        self,
        method: str,
        request: Message,
        *,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> Any: ...

    async def call(
        self,
        method: Method[Any, Any] | str,
        request: Message,
        *,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> Any:
        """Calls any method of any service, and returns its response.

        `method` is one of `berth_client.methods`, or its name: `GetVm`, or `MoveService/PlanDrain`.
        It is attempted like every other call. A request that changes something and has no
        `request_id` yet gets one; where requests have none, it is not repeated once it may
        have been carried out.
        """
        which = find(method, methods.ALL) if isinstance(method, str) else method
        if not isinstance(which, Method):
            raise TypeError(f"{which.path} has a stream of responses: use stream()")
        return await self._calls.unary(which, request, timeout=timeout, request_id=request_id)

    @overload
    def stream(
        self,
        method: StreamMethod[Q, R],
        request: Q,
        *,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> AsyncIterator[R]: ...

    @overload
    def stream(
        self,
        method: str,
        request: Message,
        *,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> AsyncIterator[Any]: ...

    def stream(
        self,
        method: StreamMethod[Any, Any] | str,
        request: Message,
        *,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> AsyncIterator[Any]:
        """Calls any method that has a stream of responses, and yields them as they come.

        `timeout` is for the whole stream; by default it has none. Once it has begun, a connection
        that breaks ends it with `Unavailable`, and the reason `STREAM_BROKEN`.
        """
        which = find(method, methods.ALL) if isinstance(method, str) else method
        if not isinstance(which, StreamMethod):
            raise TypeError(f"{which.path} has one response: use call()")
        return self._calls.stream(which, request, timeout=timeout, request_id=request_id)

    async def close(self) -> None:
        """Closes all connections. Calls that are under way fail; operations go on."""
        await self._calls.close()

    async def __aenter__(self) -> "AsyncClient":
        """Returns itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it."""
        await self.close()

    def __repr__(self) -> str:
        """Returns the addresses, and whether they are called over TLS."""
        is_encrypted = self._calls.settings.certificates is not None
        return f"<{type(self).__name__} {','.join(self.schedulers)} tls={is_encrypted}>"
