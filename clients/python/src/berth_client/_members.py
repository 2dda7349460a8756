"""What a client knows of the servers: schedulers that were given or learnt, and conductors.

Nothing here is stored. Several threads may use it: each field is replaced as a whole.

Invariant: schedulers that were given are always tried, and first.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from berth_client._ids import short
from berth_client._settings import address
from berth_client.proto.cluster.v1 import cluster_pb2

LEARNT_MAX = 32
"""How many schedulers are learnt at most."""
LEARN_INTERVAL = 60.0
"""How often the members are read, in seconds, while calls are made."""
LISTED_FOR = 30.0
"""How long a list of the conductors is used, in seconds."""


@dataclass(slots=True)
class Schedulers:
    """The schedulers of a client."""

    given: tuple[str, ...]
    current: str
    """Where the next call begins: at the leader, as far as is known."""
    learnt: tuple[str, ...] = ()
    learn_at: float = 0.0
    """When the members are to be read again."""

    def endpoints(self) -> list[str]:
        """Returns all addresses in the order in which they are tried."""
        return [*self.given, *(one for one in self.learnt if one not in self.given)]

    def learn(self, members: Iterable[cluster_pb2.Member]) -> None:
        """Takes the addresses of the members over."""
        self.learnt = tuple(_addresses(member.address for member in members))[:LEARNT_MAX]


@dataclass(frozen=True, slots=True)
class Listed:
    """The conductors that have registered."""

    names: dict[str, str] = field(default_factory=dict)
    """Their names by their addresses: those first that can do most."""
    versions: dict[str, int] = field(default_factory=dict)
    """What each can do, as its service version."""
    cluster_id: str = ""
    """The cluster that they have registered with."""
    until: float = 0.0
    """When the list is to be read again."""

    def endpoints(self, needs: int) -> list[str]:
        """Returns the addresses of those that have at least this service version."""
        return [one for one in self.names if self.versions[one] >= needs]


def listed(services: Iterable[cluster_pb2.Service], cluster_id: str, now: float) -> Listed:
    """Returns the list of the conductors as it is now."""
    newest = sorted(services, key=lambda service: -service.service_version)
    names: dict[str, str] = {}
    versions: dict[str, int] = {}
    for service in newest:
        for one in _addresses([service.address]):
            names.setdefault(one, short(service.name))
            versions.setdefault(one, service.service_version)
    return Listed(names, versions, cluster_id, now + LISTED_FOR)


def _addresses(typed: Iterable[str]) -> Iterable[str]:
    for one in typed:
        try:
            yield address(one)
        except ValueError:
            # What a newer server may report is no address to this client.
            continue
