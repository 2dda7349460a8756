"""What a method of a service is: its path, its messages, and whether it may be repeated.

Not here: the methods themselves, which are generated (`berth_client.methods`).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from google.protobuf.message import Message

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


class Target(Enum):
    """Which program serves a method."""

    SCHEDULER = "scheduler"
    """Any member; most methods lead to the one that leads."""
    CONDUCTOR = "conductor"
    """Any conductor that has registered."""


@dataclass(frozen=True, slots=True)
class _Base(Generic[Q, R]):
    path: str
    """As `/berth.scheduler.v1.SchedulerService/GetVm`."""
    request: type[Q]
    """The class of its requests."""
    response: type[R]
    """The class of its responses."""
    target: Target
    """Which program serves it."""
    is_read: bool
    """Whether it changes nothing, and so may be repeated at any time."""

    @property
    def is_keyed(self) -> bool:
        """Whether its requests have an id, under which each is carried out once."""
        return "request_id" in self.request.DESCRIPTOR.fields_by_name

    def changes(self, request: Message) -> bool:
        """Returns whether this request may change something."""
        return not (self.is_read or getattr(request, "validate_only", False))


@dataclass(frozen=True, slots=True)
class Method(_Base[Q, R]):
    """A method with one request and one response."""


@dataclass(frozen=True, slots=True)
class StreamMethod(_Base[Q, R]):
    """A method with one request and a stream of responses."""


AnyMethod: TypeAlias = Method[Any, Any] | StreamMethod[Any, Any]


def find(name: str, methods: tuple[AnyMethod, ...]) -> AnyMethod:
    """Returns the method of this name: `GetVm`, `SchedulerService/GetVm` or its whole path.

    Raises `ValueError` if there is none, or several.
    """
    end = "/" + name.lstrip("/")
    matching = [
        method for method in methods if method.path.endswith((end, "." + name))
    ]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise ValueError(f"there is no method {name!r}; all of them are in berth_client.methods")
    several = " or ".join(method.path.rpartition(".")[2] for method in matching)
    raise ValueError(f"several services have a method {name!r}: say {several}")
