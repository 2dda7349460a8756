"""Connections, and single attempts over them.

Not here: where an attempt goes and whether it is repeated. Written by hand in both halves. Several
threads may use one transport.
"""

import threading
import time
from collections.abc import Iterator
from typing import Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from berth_client._channels import Metadata, codec, has_no_connection, options
from berth_client._method import Method, StreamMethod
from berth_client._settings import Settings
from berth_client._status import NotSent
from berth_client._tls import Expected, credentials

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
R_co = TypeVar("R_co", bound=Message, covariant=True)


class Stream(Protocol[R_co]):
    """The responses of a call that goes on."""

    def __iter__(self) -> Iterator[R_co]:
        """Returns the responses."""
        ...

    def cancel(self) -> bool:
        """Ends the call."""
        ...


class Transport:
    """The connections of a client, one for each address."""

    def __init__(self, settings: Settings) -> None:
        """Makes a transport; it connects when it is used."""
        self._settings = settings
        self._channels: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def unary(
        self,
        address: str,
        expected: Expected,
        method: Method[Q, R],
        request: Q,
        timeout: float,
        metadata: Metadata,
    ) -> R:
        """Makes one attempt. Raises `grpc.RpcError`."""
        channel = self._channel(address, expected)
        try:
            call = channel.unary_unary(method.path, **codec(method))
            answer: R = call(request, timeout=timeout, metadata=metadata)
            return answer
        except grpc.RpcError as error:
            self._forget(address, channel, error)
            raise
        except ValueError as error:
            # What gRPC raises on a channel that another thread has closed.
            raise NotSent(f"{address}: the connection was closed") from error

    def stream(
        self,
        address: str,
        expected: Expected,
        method: StreamMethod[Q, R],
        request: Q,
        timeout: float | None,
        metadata: Metadata,
    ) -> Stream[R]:
        """Begins one attempt. Raises `grpc.RpcError`, also while responses are read."""
        channel = self._channel(address, expected)
        try:
            call = channel.unary_stream(method.path, **codec(method))
            stream: Stream[R] = call(request, timeout=timeout, metadata=metadata)
            return stream
        except ValueError as error:
            raise NotSent(f"{address}: the connection was closed") from error

    def forget(self, address: str, error: grpc.RpcError) -> None:
        """Notes that a stream has failed."""
        with self._lock:
            channel = self._channels.get(address)
        if channel is not None:
            self._forget(address, channel, error)

    def sleep(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)

    def now(self) -> float:
        """Returns the time by which deadlines are counted, in seconds."""
        return time.monotonic()

    def close(self) -> None:
        """Closes all connections; calls on them are cancelled."""
        with self._lock:
            self._is_closed = True
            channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.close()

    def _channel(self, address: str, expected: Expected) -> grpc.Channel:
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the client is closed")
            channel = self._channels.get(address)
        if channel is not None:
            return channel
        # Outside of the lock: it may take a while.
        with_options = options(self._settings)
        if self._settings.certificates is None:
            channel = grpc.insecure_channel(address, options=with_options)
        else:
            shown = credentials(address, expected, self._settings.certificates)
            channel = grpc.secure_channel(address, shown, options=with_options)
        with self._lock:
            kept = channel if self._is_closed else self._channels.setdefault(address, channel)
        if self._is_closed or kept is not channel:
            # Another thread was faster.
            channel.close()
        if self._is_closed:
            raise RuntimeError("the client is closed")
        return kept

    def _forget(self, address: str, channel: grpc.Channel, error: grpc.RpcError) -> None:
        """Drops a connection that cannot be made: the server may have another certificate now."""
        if self._settings.certificates is None or not has_no_connection(error):
            return
        with self._lock:
            is_current = self._channels.get(address) is channel
            if is_current:
                del self._channels[address]
        if is_current:
            channel.close()
