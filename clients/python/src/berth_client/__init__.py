"""Client of Berth, a control plane for clusters of virtual machines.

    import berth_client

    with berth_client.Client(["127.0.0.1:7100"]) as client:
        client.vms.create("a", flavor="small", kernel="vmlinuz", initrd="initrd").wait()

`Client` blocks, and may be used by several threads; `AsyncClient` has the same methods for
`asyncio`. Errors are in `berth_client.errors`, messages that are used most in `berth_client.types`,
all others in `berth_client.proto`, and all methods of all services in `berth_client.methods`.
"""

from berth_client._async.client import AsyncClient
from berth_client._async.operation import AsyncOperation
from berth_client._ids import new_request_id
from berth_client._method import Method, StreamMethod
from berth_client._sync.client import Client
from berth_client._sync.operation import Operation
from berth_client.changes import Change
from berth_client.errors import (
    Aborted,
    AlreadyExists,
    BerthError,
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    HostRefusal,
    Internal,
    InvalidArgument,
    NotFound,
    NoValidHost,
    OperationFailed,
    OutcomeUnknown,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
    WaitTimeout,
)
from berth_client.types import disk, state_of

__all__ = [
    "Aborted",
    "AlreadyExists",
    "AsyncClient",
    "AsyncOperation",
    "BerthError",
    "Cancelled",
    "Change",
    "Client",
    "DeadlineExceeded",
    "FailedPrecondition",
    "HostRefusal",
    "Internal",
    "InvalidArgument",
    "Method",
    "NoValidHost",
    "NotFound",
    "Operation",
    "OperationFailed",
    "OutOfRange",
    "OutcomeUnknown",
    "PermissionDenied",
    "ResourceExhausted",
    "StreamMethod",
    "Unavailable",
    "Unimplemented",
    "WaitTimeout",
    "disk",
    "new_request_id",
    "state_of",
]
