"""Connections with `asyncio`, and single attempts over them.

Not here: where an attempt goes and whether it is repeated. Written by hand in both halves.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from berth_client._channels import Metadata, codec, has_no_connection, options
from berth_client._method import Method, StreamMethod
from berth_client._settings import Settings
from berth_client._status import NotSent
from berth_client._tls import Expected, credentials

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
R_co = TypeVar("R_co", bound=Message, covariant=True)


class AsyncStream(Protocol[R_co]):
    """The responses of a call that goes on."""

    def __aiter__(self) -> AsyncIterator[R_co]:
        """Returns the responses."""
        ...

    def cancel(self) -> bool:
        """Ends the call."""
        ...


class AsyncTransport:
    """The connections of a client, one for each address."""

    def __init__(self, settings: Settings) -> None:
        """Makes a transport; it connects when it is used."""
        self._settings = settings
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._is_closed = False

    async def unary(
        self,
        address: str,
        expected: Expected,
        method: Method[Q, R],
        request: Q,
        timeout: float,
        metadata: Metadata,
    ) -> R:
        """Makes one attempt. Raises `grpc.RpcError`."""
        channel = await self._channel(address, expected)
        call = channel.unary_unary(method.path, **codec(method))
        try:
            answer: R = await call(request, timeout=timeout, metadata=metadata)
            return answer
        except grpc.RpcError as error:
            await self._forget(address, channel, error)
            raise
        except grpc.aio.UsageError as error:
            raise NotSent(f"{address}: the connection was closed") from error

    async def stream(
        self,
        address: str,
        expected: Expected,
        method: StreamMethod[Q, R],
        request: Q,
        timeout: float | None,
        metadata: Metadata,
    ) -> AsyncStream[R]:
        """Begins one attempt. Raises `grpc.RpcError`, also while responses are read."""
        channel = await self._channel(address, expected)
        call = channel.unary_stream(method.path, **codec(method))
        stream: AsyncStream[R] = call(request, timeout=timeout, metadata=metadata)
        return stream

    async def forget(self, address: str, error: grpc.RpcError) -> None:
        """Notes that a stream has failed."""
        channel = self._channels.get(address)
        if channel is not None:
            await self._forget(address, channel, error)

    async def sleep(self, seconds: float) -> None:
        """Waits."""
        await asyncio.sleep(seconds)

    def now(self) -> float:
        """Returns the time by which deadlines are counted, in seconds."""
        return time.monotonic()

    async def close(self) -> None:
        """Closes all connections; calls on them are cancelled."""
        self._is_closed = True
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()

    async def _channel(self, address: str, expected: Expected) -> grpc.aio.Channel:
        if self._is_closed:
            raise RuntimeError("the client is closed")
        channel = self._channels.get(address)
        if channel is not None:
            return channel
        with_options = options(self._settings)
        if self._settings.certificates is None:
            channel = grpc.aio.insecure_channel(address, options=with_options)
        else:
            shown = await asyncio.to_thread(
                credentials, address, expected, self._settings.certificates
            )
            channel = grpc.aio.secure_channel(address, shown, options=with_options)
        if self._is_closed:
            await channel.close()
            raise RuntimeError("the client is closed")
        kept = self._channels.setdefault(address, channel)
        if kept is not channel:
            # Another task was faster.
            await channel.close()
        return kept

    async def _forget(
        self, address: str, channel: grpc.aio.Channel, error: grpc.RpcError
    ) -> None:
        """Drops a connection that cannot be made: the server may have another certificate now."""
        if self._settings.certificates is None or not has_no_connection(error):
            return
        if self._channels.get(address) is channel:
            del self._channels[address]
            await channel.close()
