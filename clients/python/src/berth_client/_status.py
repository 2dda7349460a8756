"""What a failed call states: the refusal in its details, or how the connection failed.

A status of Berth carries a `google.rpc.ErrorInfo` of the domain `berth`, and mostly a whole
`berth.type.v1.Refusal`. A status without them was made by the transport, or by a proxy.
"""

from dataclasses import dataclass, replace
from typing import Protocol, cast

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from berth_client.errors import HostRefusal, Refusal
from berth_client.proto.type.v1 import refusal_pb2

_DETAILS = "grpc-status-details-bin"
_DOMAIN = "berth"
# What gRPC states where it had no connection on which to send the call.
_UNSENT = "failed to connect to all addresses"
# Codes that the transport makes of a connection that broke.
_BROKEN = frozenset({"UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED", "UNKNOWN", "INTERNAL"})
# The longest message that is taken over, in characters: a proxy may send a page.
_MESSAGE_MAX = 2048


class NotSent(grpc.RpcError):
    """A call that no connection could be made for: nothing was sent."""

    def __init__(self, why: str) -> None:
        """Makes the error of an attempt."""
        super().__init__(why)
        self.why = why


class _Ended(Protocol):
    """What a failed call has, of either kind of channel."""

    def code(self) -> grpc.StatusCode: ...

    def details(self) -> str | None: ...

    def trailing_metadata(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt of a call."""

    code: str
    """The name of the gRPC code."""
    message: str
    """For people."""
    refusal: Refusal | None
    """What a server of Berth stated; absent where none answered."""
    is_unsent: bool
    """Whether nothing was sent."""
    is_decided: bool = False
    """Whether the refusal is one of the state, and not of a layer before the decision."""

    @property
    def is_unanswered(self) -> bool:
        """Whether no server answered, so that another attempt may succeed."""
        return self.refusal is None and self.code in _BROKEN

    @property
    def is_of_other_kind(self) -> bool:
        """Whether a server answered that does not know the method."""
        return self.refusal is None and self.code == "UNIMPLEMENTED"

    @property
    def reason(self) -> str:
        """The reason of the refusal, or the code."""
        return self.refusal.reason if self.refusal else self.code

    def stated(self) -> Refusal:
        """Returns the refusal, also of what is not Berth's."""
        return self.refusal or Refusal(self.code, self.code, self.message)


def read_failure(error: grpc.RpcError) -> Failure:
    """Returns what a failed call states."""
    if isinstance(error, NotSent):
        return Failure("UNAVAILABLE", error.why, None, True)
    ended = cast(_Ended, error)
    code = ended.code().name
    message = (ended.details() or code)[:_MESSAGE_MAX]
    refusal, is_whole = _refusal_of(code, message, ended.trailing_metadata())
    is_unsent = refusal is None and code == "UNAVAILABLE" and message.startswith(_UNSENT)
    is_decided = code not in ("PERMISSION_DENIED", "UNAUTHENTICATED") and is_whole
    return Failure(code, message, refusal, is_unsent, is_decided)


def refusal_of_wire(wire: refusal_pb2.Refusal) -> Refusal:
    """Returns a refusal that stands in a message."""
    code = refusal_pb2.Refusal.Code.Name(wire.code).removeprefix("CODE_")
    return Refusal(
        code,
        wire.reason,
        wire.message,
        wire.hint if wire.HasField("hint") else None,
        dict(wire.metadata),
        dict(wire.causes),
        tuple(_host(host) for host in wire.hosts),
    )


def _host(wire: refusal_pb2.HostRefusal) -> HostRefusal:
    missing = wire.missing if wire.HasField("missing") else None
    return HostRefusal(
        wire.host.removeprefix("hosts/"),
        wire.cause,
        wire.message,
        missing.resource if missing else None,
        missing.requested if missing else 0,
        missing.available if missing else 0,
    )


def _refusal_of(code: str, message: str, trailers: object) -> tuple[Refusal | None, bool]:
    """Returns the refusal in the details, and whether it is a whole one."""
    details = _details(trailers)
    for detail in details:
        wire = refusal_pb2.Refusal()
        if detail.Is(wire.DESCRIPTOR) and detail.Unpack(wire) and wire.reason:
            # A newer server may have codes that are not known here: that of the status counts.
            if wire.code not in refusal_pb2.Refusal.Code.values():
                wire.code = refusal_pb2.Refusal.CODE_UNSPECIFIED
            return replace(refusal_of_wire(wire), code=code), True
    for detail in details:
        info = error_details_pb2.ErrorInfo()
        if detail.Is(info.DESCRIPTOR) and detail.Unpack(info) and info.domain == _DOMAIN:
            metadata = dict(info.metadata)
            hint = metadata.pop("hint", None)
            return Refusal(code, info.reason or code, message, hint, metadata), False
    return None, False


def _details(trailers: object) -> list[any_pb2.Any]:
    for key, value in trailers or ():  # type: ignore[attr-defined]
        if key == _DETAILS:
            try:
                return list(status_pb2.Status.FromString(value).details)
            except DecodeError:
                # Bytes of another program: as if there were none.
                return []
    return []
