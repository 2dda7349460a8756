"""Calls that find their server (asynchronous): the scheduler that leads, or a conductor.

What an answer means and where the next attempt goes is decided in `_route`.
"""

from collections.abc import AsyncIterator
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from berth_client import methods
from berth_client._async.transport import AsyncTransport
from berth_client._channels import Metadata
from berth_client._ids import new_request_id
from berth_client._members import LEARN_INTERVAL, Listed, Schedulers, listed
from berth_client._method import AnyMethod, Method, StreamMethod, Target
from berth_client._route import Attempts, Call
from berth_client._settings import Settings
from berth_client._status import Failure, read_failure
from berth_client._template import version_needed
from berth_client._tls import Expected
from berth_client.errors import (
    OUTCOME_UNKNOWN,
    BerthError,
    FailedPrecondition,
    Refusal,
    Unavailable,
    error_of,
)
from berth_client.proto.cluster.v1 import cluster_service_pb2

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

_SCHEDULER = Expected("scheduler")
_CLUSTER = "x-berth-cluster"
# How long a call may take that learns the members, in seconds: the caller waits for it.
_LEARN_TIMEOUT = 1.0
STREAM_BROKEN = "STREAM_BROKEN"


class AsyncCalls:
    """Makes calls. Several tasks may use it at the same time."""

    def __init__(self, settings: Settings) -> None:
        """Makes it without any connection."""
        self.settings = settings
        self.transport = AsyncTransport(settings)
        self._schedulers = Schedulers(settings.schedulers, settings.schedulers[0])
        self._conductors = Listed()

    @property
    def schedulers(self) -> list[str]:
        """The addresses of all schedulers that are known."""
        return self._schedulers.endpoints()

    async def close(self) -> None:
        """Closes all connections."""
        await self.transport.close()

    async def unary(
        self,
        method: Method[Q, R],
        request: Q,
        *,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> R:
        """Makes a call, in as many attempts as it takes and the time permits."""
        request, call = _prepare(method, request, request_id)
        attempts = await self._begin(call, timeout)
        while True:
            left = max(attempts.deadline - self.transport.now(), 0.001)
            at, metadata = attempts.address, self._metadata(call)
            try:
                answer = await self.transport.unary(
                    at, self._expected(call, at), method, request, left, metadata
                )
            except grpc.RpcError as error:
                failure = read_failure(error)
            else:
                await self._note(call, at)
                return answer
            await self._go_on(attempts, failure)

    async def stream(
        self,
        method: StreamMethod[Q, R],
        request: Q,
        *,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> AsyncIterator[R]:
        """Makes a call and yields its responses.

        Until the first response it is repeated like others, for as long as a call may take;
        `timeout` is for the whole stream. A stream that breaks later ends with `STREAM_BROKEN`.
        """
        request, call = _prepare(method, request, request_id)
        attempts = await self._begin(call, None)
        has_begun = False
        while True:
            at = attempts.address
            responses = None
            try:
                responses = await self.transport.stream(
                    at, self._expected(call, at), method, request, timeout, self._metadata(call)
                )
                async for response in responses:
                    if not has_begun:
                        has_begun = True
                        await self._note(call, at)
                    yield response
                return
            except grpc.RpcError as error:
                await self.transport.forget(at, error)
                failure = read_failure(error)
            finally:
                if responses is not None:
                    responses.cancel()
            if has_begun:
                self.move_on(at)
                raise broken(call, failure)
            await self._go_on(attempts, failure)

    def move_on(self, lost: str | None = None) -> None:
        """Has the next call begin at another scheduler: this one has ended a stream."""
        endpoints = self._schedulers.endpoints()
        current = self._schedulers.current
        if current in endpoints and lost in (None, current):
            at = (endpoints.index(current) + 1) % len(endpoints)
            self._schedulers.current = endpoints[at]

    async def _begin(self, call: Call, timeout: float | None) -> Attempts:
        now = self.transport.now()
        seconds = self.settings.timeout if timeout is None else timeout
        deadline = now + seconds
        if not call.at_conductor:
            return Attempts(
                call, self._schedulers.endpoints, self._schedulers.current, now, deadline
            )
        known = self._conductors.endpoints(call.needs)
        if not known or now >= self._conductors.until:
            await self._list_conductors(call, seconds)
            known = self._conductors.endpoints(call.needs)
        return Attempts(
            call, lambda: self._conductors.endpoints(call.needs), known[0], now, deadline
        )

    async def _go_on(self, attempts: Attempts, failure: Failure) -> None:
        """Moves on to the next attempt. Raises the error of the call where there is none."""
        wait = attempts.failed(failure, self.transport.now())
        if wait:
            await self.transport.sleep(wait)
        if not attempts.call.at_conductor or not (failure.is_unanswered or wait):
            return
        # Another one may have registered meanwhile, or this one at another address.
        left = attempts.deadline - self.transport.now()
        try:
            await self._list_conductors(attempts.call, max(left, 0.001))
        except BerthError as error:
            raise attempts.given_up(error) from error
        known = self._conductors.endpoints(attempts.call.needs)
        if attempts.address not in known:
            attempts.address = known[0]

    async def _list_conductors(self, call: Call, timeout: float) -> None:
        request = cluster_service_pb2.ListServicesRequest()
        answer = await self.unary(methods.ClusterService.ListServices, request, timeout=timeout)
        now = self.transport.now()
        found = listed(answer.services, answer.cluster_id, now)
        if not found.names:
            raise Unavailable(
                Refusal(
                    "UNAVAILABLE",
                    "CONDUCTOR_UNREACHABLE",
                    "no conductor has registered with the schedulers",
                    "start one: berth-conductor --scheduler ADDRESS",
                )
            )
        self._conductors = found
        if not found.endpoints(call.needs):
            raise FailedPrecondition(
                Refusal(
                    "FAILED_PRECONDITION",
                    "SERVICE_VERSION_TOO_OLD",
                    f"no conductor has the service version {call.needs} that this needs",
                    "upgrade a conductor",
                )
            )

    async def _note(self, call: Call, at: str) -> None:
        """Notes which scheduler has answered, and now and then learns the others from it."""
        if call.at_conductor:
            return
        self._schedulers.current = at
        now = self.transport.now()
        if now < self._schedulers.learn_at:
            return
        self._schedulers.learn_at = now + LEARN_INTERVAL
        status = methods.ClusterService.GetClusterStatus
        request = cluster_service_pb2.GetClusterStatusRequest()
        try:
            answer = await self.transport.unary(
                at, _SCHEDULER, status, request, _LEARN_TIMEOUT, self._metadata(None)
            )
        except grpc.RpcError:
            # It is for later calls; this one has its answer.
            return
        self._schedulers.learn(answer.members)

    def _expected(self, call: Call, at: str) -> Expected:
        if not call.at_conductor:
            return _SCHEDULER
        return Expected("conductor", self._conductors.names.get(at))

    def _metadata(self, call: Call | None) -> Metadata:
        cluster = self.settings.cluster_id
        if call is not None and call.at_conductor:
            # One that has gone over to another cluster refuses what it would do there.
            cluster = cluster or self._conductors.cluster_id
        return ((_CLUSTER, cluster),) if cluster else ()


def _prepare(method: AnyMethod, request: Q, request_id: str | None) -> tuple[Q, Call]:
    """Returns the request as all attempts have it."""
    if not isinstance(request, method.request):
        needed = method.request.DESCRIPTOR.full_name
        raise TypeError(f"{method.path} takes a {needed}, not a {type(request).__name__}")
    changes = method.changes(request)
    key: str | None = None
    if changes and method.is_keyed:
        # A copy: the caller's message stays as it is.
        keyed = type(request)()
        keyed.CopyFrom(request)
        key = request_id or getattr(request, "request_id", "") or new_request_id()
        setattr(keyed, "request_id", key)  # noqa: B010 -- not every message has it
        request = keyed
    elif request_id is not None:
        raise TypeError(f"{method.path} takes no request id")
    at_conductor = method.target is Target.CONDUCTOR
    return request, Call(changes, key, at_conductor, version_needed(request))


def broken(call: Call, failure: Failure) -> BerthError:
    """Returns why a stream ended: a connection that was cut is as good as a member that stops."""
    if failure.refusal:
        return error_of(failure.refusal, call.request_id)
    if call.changes:
        # It has begun, and what became of it is not known.
        text = f"{failure.message}; what the request has begun may go on"
        hint = f"repeat it with request_id={call.request_id!r}" if call.request_id else None
        unknown = Refusal("UNAVAILABLE", OUTCOME_UNKNOWN, text, hint)
        return error_of(unknown, call.request_id)
    if failure.is_unanswered and failure.code != "DEADLINE_EXCEEDED":
        text = f"the connection to the server broke: {failure.message}"
        return error_of(Refusal("UNAVAILABLE", STREAM_BROKEN, text))
    return error_of(failure.stated())
