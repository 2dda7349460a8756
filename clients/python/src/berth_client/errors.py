"""The errors of calls: what was refused, why, and what to do about it.

Every error is a `BerthError`. Its class follows from the gRPC code, except that of an unknown
outcome, which follows from what an answer states: `docs/answers.md` in Berth's repository.

    BerthError
    ├── InvalidArgument      (also a ValueError) the request, or a parameter, is wrong
    ├── NotFound             there is no such object
    ├── AlreadyExists        there is one of this name
    ├── FailedPrecondition   the object is in another state than this needs
    ├── Aborted              the generation is outdated, or a lease was lost
    ├── ResourceExhausted    a limit is reached
    │   └── NoValidHost      no host can take the VM: see `causes` and `hosts`
    ├── OutOfRange           what is requested is no longer kept, or does not exist yet
    ├── PermissionDenied     the certificate's role may not do this
    ├── Unavailable          nothing was changed, and no server could do it in time
    ├── OutcomeUnknown       it is done, will be done, or never is: repeat it with its `request_id`
    ├── DeadlineExceeded     (also a TimeoutError) a server gave up
    ├── WaitTimeout          (also a TimeoutError) the operation goes on
    ├── OperationFailed      an operation has ended without success
    ├── Cancelled            a server cancelled it
    ├── Unimplemented        the server is of a version without this method
    └── Internal             a fault of Berth
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "Aborted",
    "AlreadyExists",
    "BerthError",
    "Cancelled",
    "DeadlineExceeded",
    "FailedPrecondition",
    "HostRefusal",
    "Internal",
    "InvalidArgument",
    "NoValidHost",
    "NotFound",
    "OperationFailed",
    "OutOfRange",
    "OutcomeUnknown",
    "PermissionDenied",
    "Refusal",
    "ResourceExhausted",
    "Unavailable",
    "Unimplemented",
    "WaitTimeout",
    "error_of",
]

OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
# What an answer with one of these reasons states is "unknown", whatever its code.
UNKNOWN = frozenset(
    {OUTCOME_UNKNOWN, "OUTCOME_FORGOTTEN", "REQUEST_ID_FORGOTTEN", "REPLY_MISMATCH"}
)


@dataclass(frozen=True, slots=True)
class HostRefusal:
    """Why one host cannot take a VM."""

    host: str
    """Its name, without `hosts/`."""
    cause: str
    """For programs, as `DEDICATED_CPUS`."""
    message: str
    """For people."""
    resource: str | None = None
    """What is missing, as `dedicated CPUs`, where it is countable."""
    requested: int = 0
    """How much of it the VM needs."""
    available: int = 0
    """How much of it there is."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a server states about a request that it refused."""

    code: str
    """The name of the gRPC code, as `NOT_FOUND`."""
    reason: str
    """For programs, as `VM_NOT_FOUND`."""
    message: str
    """For people: what was refused, and where."""
    hint: str | None = None
    """What to do about it."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Further facts for programs."""
    causes: Mapping[str, int] = field(default_factory=dict)
    """How many hosts were refused for which cause."""
    hosts: tuple[HostRefusal, ...] = ()
    """The hosts that came nearest."""


class BerthError(Exception):
    """A call that was refused, or of which the outcome is not known."""

    def __init__(self, refusal: Refusal, *, request_id: str | None = None) -> None:
        """Makes the error of a refusal; `request_id` is that of a request that may be repeated."""
        super().__init__(refusal, request_id)
        self.refusal = refusal
        self.request_id = request_id

    @property
    def code(self) -> str:
        """The name of the gRPC code, as `NOT_FOUND`."""
        return self.refusal.code

    @property
    def reason(self) -> str:
        """For programs, as `VM_NOT_FOUND`."""
        return self.refusal.reason

    @property
    def message(self) -> str:
        """For people: what was refused, and where."""
        return self.refusal.message

    @property
    def hint(self) -> str | None:
        """What to do about it, where there is something."""
        return self.refusal.hint

    @property
    def metadata(self) -> Mapping[str, str]:
        """Further facts for programs."""
        return self.refusal.metadata

    @property
    def causes(self) -> Mapping[str, int]:
        """How many hosts were refused for which cause."""
        return self.refusal.causes

    @property
    def hosts(self) -> tuple[HostRefusal, ...]:
        """The hosts that came nearest, and what each lacks."""
        return self.refusal.hosts

    def __str__(self) -> str:
        """Returns the message with its reason, and the hint on a line of its own."""
        text = f"{self.message} ({self.reason})"
        return f"{text}\nhint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        """Lets the error pass between processes."""
        return (_again, (type(self), self.refusal, self.request_id))


def _again(kind: type[BerthError], refusal: Refusal, request_id: str | None) -> BerthError:
    return kind(refusal, request_id=request_id)


class InvalidArgument(BerthError, ValueError):
    """The request, or a parameter of the client, is wrong."""


class NotFound(BerthError):
    """There is no such object."""


class AlreadyExists(BerthError):
    """There is an object of this name."""


class FailedPrecondition(BerthError):
    """The object is in another state than this needs."""


class Aborted(BerthError):
    """The client has an outdated generation, or a lease was lost."""


class ResourceExhausted(BerthError):
    """A limit is reached."""


class NoValidHost(ResourceExhausted):
    """No host can take the VM: `causes` counts why, `hosts` are those that came nearest."""


class OutOfRange(BerthError):
    """What is requested is no longer kept, or does not exist yet."""


class PermissionDenied(BerthError):
    """The role of the client's certificate may not do this."""


class Unavailable(BerthError):
    """No server could do it in time, and nothing was changed."""


class OutcomeUnknown(BerthError):
    """It is done, will be done, or never is: repeat the request with its `request_id`."""


class DeadlineExceeded(BerthError, TimeoutError):
    """A server gave up because of the time that it took."""


class WaitTimeout(BerthError, TimeoutError):
    """The time to wait has passed, and the operation goes on."""


class OperationFailed(BerthError):
    """An operation has ended without success; what it had done was undone."""


class Cancelled(BerthError):
    """A server cancelled the request."""


class Unimplemented(BerthError):
    """The server is of a version, or of a kind, without this method."""


class Internal(BerthError):
    """A fault of Berth or of a host."""


_CLASSES: Mapping[str, type[BerthError]] = {
    "INVALID_ARGUMENT": InvalidArgument,
    "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": AlreadyExists,
    "FAILED_PRECONDITION": FailedPrecondition,
    "ABORTED": Aborted,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "OUT_OF_RANGE": OutOfRange,
    "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "CANCELLED": Cancelled,
    "PERMISSION_DENIED": PermissionDenied,
    "UNAUTHENTICATED": PermissionDenied,
    "UNIMPLEMENTED": Unimplemented,
}


def error_of(refusal: Refusal, request_id: str | None = None) -> BerthError:
    """Returns the error of a refusal, of the class that its reason and code have."""
    if refusal.reason in UNKNOWN:
        return OutcomeUnknown(refusal, request_id=request_id)
    if refusal.reason == "NO_VALID_HOST":
        return NoValidHost(refusal, request_id=request_id)
    kind = _CLASSES.get(refusal.code, Internal)
    return kind(refusal, request_id=request_id)
