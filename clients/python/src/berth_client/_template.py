"""The request for a new VM, of plain parameters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from google.protobuf.message import Message

from berth_client._ids import resource
from berth_client._settings import invalid
from berth_client.proto.conductor.v1 import conductor_service_pb2
from berth_client.proto.type.v1 import first_boot_pb2, restart_pb2, vm_spec_pb2


def version_needed(request: Message) -> int:
    """Returns the service version that a conductor needs for a request.

    One of an earlier build does not know some parameters, and would drop them without a word.
    """
    if not isinstance(request, conductor_service_pb2.CreateVmRequest):
        return 0
    template = request.template
    newest = template.HasField("restart_policy") or template.HasField("first_boot")
    written = template.labels or template.description or template.protected
    if newest or written or template.project not in ("", "default"):
        return 4
    return 3 if template.server_group or template.availability_zone or template.volumes else 0


@dataclass(frozen=True, slots=True)
class Source:
    """What a VM is made of and starts from."""

    flavor: str
    kernel: str | None = None
    initrd: str = ""
    cmdline: str = "console=ttyS0"
    disks: Iterable[vm_spec_pb2.Disk] = ()
    nics: Iterable[vm_spec_pb2.Nic] = ()
    image_properties: Mapping[str, str] = field(default_factory=dict)
    server_group: str = ""
    availability_zone: str = ""
    volumes: Iterable[vm_spec_pb2.VolumeAttachment] = ()
    project: str = ""
    restart_policy: restart_pb2.RestartPolicy | None = None
    first_boot: first_boot_pb2.FirstBoot | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    protected: bool = False

    def template(self) -> vm_spec_pb2.VmTemplate:
        """Returns it as the message that is sent."""
        disks = list(self.disks)
        boot = vm_spec_pb2.BootSource()
        if self.kernel is not None:
            boot.kernel.CopyFrom(
                vm_spec_pb2.KernelBoot(
                    kernel=self.kernel, initrd=self.initrd, cmdline=self.cmdline
                )
            )
        elif disks:
            boot.disk.SetInParent()
        else:
            raise invalid(
                "NO_BOOT_SOURCE",
                "the VM has nothing to boot from",
                "give kernel, with initrd if it needs one, or disks",
            )
        return vm_spec_pb2.VmTemplate(
            flavor=resource("flavors", self.flavor),
            boot=boot,
            disks=disks,
            nics=list(self.nics),
            image_properties=dict(self.image_properties),
            server_group=resource("serverGroups", self.server_group),
            availability_zone=self.availability_zone,
            volumes=list(self.volumes),
            project=self.project,
            restart_policy=self.restart_policy,
            first_boot=self.first_boot,
            labels=dict(self.labels),
            description=self.description,
            protected=self.protected,
        )
