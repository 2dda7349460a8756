"""What a watch yields: a record as it became, or its end."""

from dataclasses import dataclass
from typing import TypeAlias

from berth_client.proto.audit.v1.audit_entry_pb2 import AuditEntry
from berth_client.proto.event.v1 import event_service_pb2
from berth_client.proto.host.v1.host_pb2 import Host
from berth_client.proto.operation.v1.operation_pb2 import Operation
from berth_client.proto.scheduler.v1.migration_pb2 import Migration
from berth_client.proto.scheduler.v1.vm_pb2 import Vm
from berth_client.proto.type.v1.claim_pb2 import Claim

Record: TypeAlias = Vm | Migration | Host | Claim | Operation | AuditEntry
"""A record of any kind that can be watched."""


@dataclass(frozen=True, slots=True)
class Change:
    """A record as it became, or its end."""

    revision: int
    """The revision that made it so."""
    kind: str
    """`VM`, `MIGRATION`, `HOST`, `CLAIM`, `OPERATION` or `AUDIT`."""
    name: str
    """The record's name with its collection, as `vms/a`."""
    record: Record | None
    """The whole record; `None`: it was deleted."""
    is_snapshot: bool
    """Whether it is one of the records as they were when the watch began."""
    resume_revision: int
    """A watch after this revision misses nothing, and may send this change again. 0: the snapshot
    is not complete."""


def change_of(event: event_service_pb2.Event, is_snapshot: bool, resume: int) -> Change:
    """Returns an event as a change."""
    record: Record | None = None
    if event.HasField("put"):
        kind = event.put.WhichOneof("record")
        record = getattr(event.put, kind) if kind else None
    name = event_service_pb2.Kind.Name(event.kind).removeprefix("KIND_")
    return Change(event.revision, name, event.name, record, is_snapshot, resume)
