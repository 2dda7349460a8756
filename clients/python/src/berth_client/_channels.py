"""What both kinds of transport have in common: the options of channels, the codec of messages.

Not here: how a call is made, which differs.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import grpc

from berth_client._method import AnyMethod
from berth_client._settings import Settings
from berth_client._status import read_failure
from berth_client._tls import CONNECT_TIMEOUT

Options: TypeAlias = list[tuple[str, Any]]
Metadata: TypeAlias = tuple[tuple[str, str], ...]

# How much of a call's time a silent server may take before its connection is given up.
_KEEP_ALIVE_MS = 3000


def options(settings: Settings) -> Options:
    """Returns the options of a channel."""
    # A server that hangs is noticed within twice this, so that there is time for another one.
    keep_alive = max(500, min(_KEEP_ALIVE_MS, int(settings.timeout * 1000 / 5)))
    return [
        ("grpc.max_receive_message_length", settings.response_bytes_max),
        ("grpc.keepalive_time_ms", keep_alive),
        ("grpc.keepalive_timeout_ms", keep_alive),
        # Without this one a ping may be unanswered for a minute, whatever the one above is.
        ("grpc.http2.ping_timeout_ms", keep_alive),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # Also the time that a connection may take to be made.
        ("grpc.min_reconnect_backoff_ms", int(CONNECT_TIMEOUT * 1000)),
        # Addresses are those of the cluster's network, whatever the environment has for the web.
        ("grpc.enable_http_proxy", 0),
        # Repetitions are decided on here, where it is known what may be repeated.
        ("grpc.enable_retries", 0),
        # Each client has connections of its own, with its own certificates.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def codec(method: AnyMethod) -> Mapping[str, Any]:
    """Returns how messages of a method are written and read."""
    return {
        "request_serializer": method.request.SerializeToString,
        "response_deserializer": method.response.FromString,
    }


def has_no_connection(error: grpc.RpcError) -> bool:
    """Returns whether a call failed because no connection could be made."""
    return read_failure(error).is_unsent
