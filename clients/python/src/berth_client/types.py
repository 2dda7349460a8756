"""Messages and parameters that programs use most. All others are in `berth_client.proto`."""

from berth_client.proto.event.v1.event_service_pb2 import Kind as EventKind
from berth_client.proto.host.v1.host_pb2 import Host
from berth_client.proto.host.v1.host_service_pb2 import GetHostResponse, HostSummary
from berth_client.proto.operation.v1.operation_pb2 import Operation as OperationMessage
from berth_client.proto.scheduler.v1.migration_pb2 import Migration
from berth_client.proto.scheduler.v1.scheduler_service_pb2 import Explanation
from berth_client.proto.scheduler.v1.vm_pb2 import Vm
from berth_client.proto.type.v1.first_boot_pb2 import FirstBoot
from berth_client.proto.type.v1.flavor_pb2 import Flavor
from berth_client.proto.type.v1.restart_pb2 import RestartPolicy
from berth_client.proto.type.v1.transfer_pb2 import TransferOverrides
from berth_client.proto.type.v1.vm_spec_pb2 import Disk, Nic, VolumeAttachment

__all__ = [
    "Disk",
    "EventKind",
    "Explanation",
    "FirstBoot",
    "Flavor",
    "GetHostResponse",
    "Host",
    "HostSummary",
    "Migration",
    "Nic",
    "OperationMessage",
    "RestartPolicy",
    "TransferOverrides",
    "Vm",
    "VolumeAttachment",
    "disk",
    "state_of",
]


def disk(image: str | None, size_gib: int, format: str | None = None) -> Disk:
    """Returns a disk of an image in the hosts' image directory, or an empty one.

    `format` is `qcow2` or `raw`; by default that which the image's name ends with, else `raw`.
    """
    if format is None:
        format = "qcow2" if image and image.endswith(".qcow2") else "raw"
    formats = {"qcow2": Disk.FORMAT_QCOW2, "raw": Disk.FORMAT_RAW}
    if format not in formats:
        raise ValueError(f"a disk's format is qcow2 or raw, not {format!r}")
    return Disk(image=image, size_gib=size_gib, format=formats[format])


def state_of(record: Vm | Migration | Host | HostSummary) -> str:
    """Returns the state of a record as `berth` shows it: `ACTIVE`, `COMPLETED`, `UP`."""
    if isinstance(record, HostSummary):
        record = record.host
    if isinstance(record, Host):
        return Host.Liveness.Name(record.liveness).removeprefix("LIVENESS_")
    if isinstance(record, Vm):
        return Vm.State.Name(record.state).removeprefix("STATE_")
    return Migration.State.Name(record.state).removeprefix("STATE_")
