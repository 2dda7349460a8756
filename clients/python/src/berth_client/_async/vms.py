"""VMs (asynchronous): created, moved, stopped, shown, deleted.

Names may be given with their collection or without: `a` and `vms/a`. What takes time returns an
operation once it has begun: wait for that. Each method that changes something takes

* `request_id`: a UUID. A repeated request with the same one is carried out once. By default a new
  one, which an `OutcomeUnknown` states;
* `timeout`: how long the request may take until it has begun, in seconds; by default the client's.
"""

from collections.abc import AsyncIterator, Iterable, Mapping

from berth_client import methods
from berth_client._async.calls import AsyncCalls
from berth_client._async.operation import AsyncOperation
from berth_client._ids import resource
from berth_client._labels import has_labels, list_of
from berth_client._template import Source
from berth_client.proto.conductor.v1 import conductor_service_pb2 as wire
from berth_client.proto.scheduler.v1 import power_service_pb2, scheduler_service_pb2
from berth_client.proto.scheduler.v1.vm_pb2 import Vm
from berth_client.proto.type.v1.first_boot_pb2 import FirstBoot
from berth_client.proto.type.v1.restart_pb2 import RestartPolicy
from berth_client.proto.type.v1.transfer_pb2 import TransferOverrides
from berth_client.proto.type.v1.vm_spec_pb2 import Disk, Nic, VolumeAttachment

_CONDUCTOR = methods.ConductorService
_SCHEDULER = methods.SchedulerService


class AsyncVms:
    """The VMs of a cluster."""

    def __init__(self, calls: AsyncCalls) -> None:
        """Makes the group of a client."""
        self._calls = calls

    async def create(
        self,
        name: str,
        *,
        flavor: str,
        kernel: str | None = None,
        initrd: str = "",
        cmdline: str = "console=ttyS0",
        disks: Iterable[Disk] = (),
        nics: Iterable[Nic] = (),
        image_properties: Mapping[str, str] | None = None,
        server_group: str = "",
        availability_zone: str = "",
        volumes: Iterable[VolumeAttachment] = (),
        project: str = "",
        restart_policy: RestartPolicy | None = None,
        first_boot: FirstBoot | None = None,
        labels: Mapping[str, str] | None = None,
        description: str = "",
        protected: bool = False,
        host: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Creates a VM and boots it, from a kernel or from its first disk.

        With `first_boot` the guest gets user-data, SSH keys and a network configuration. A VM that
        is `protected` can neither be deleted nor rebuilt until `update` lifts that.

        Raises `NoValidHost` if no host can take it, `AlreadyExists` if there is one of this name.
        """
        source = Source(
            flavor, kernel, initrd, cmdline, disks, nics, image_properties or {}, server_group,
            availability_zone, volumes, project, restart_policy, first_boot, labels or {},
            description, protected,
        )
        request = wire.CreateVmRequest(
            vm=resource("vms", name),
            template=source.template(),
            requested_host=resource("hosts", host),
        )
        answer = await self._calls.unary(
            _CONDUCTOR.CreateVm, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    boot = create
    """The same under the name that OpenStack's client has for it."""

    async def explain(
        self,
        name: str,
        *,
        flavor: str,
        kernel: str | None = None,
        disks: Iterable[Disk] = (),
        nics: Iterable[Nic] = (),
        image_properties: Mapping[str, str] | None = None,
        server_group: str = "",
        availability_zone: str = "",
        volumes: Iterable[VolumeAttachment] = (),
        project: str = "",
        first_boot: FirstBoot | None = None,
        host: str = "",
    ) -> scheduler_service_pb2.Explanation:
        """Returns where such a VM would be placed; nothing is claimed.

        Raises `NoValidHost` with the causes if no host can take it.
        """
        source = Source(
            flavor, kernel if kernel is not None or disks else "kernel", "", "", disks, nics,
            image_properties or {}, server_group, availability_zone, volumes, project,
            first_boot=first_boot,
        )
        request = scheduler_service_pb2.ScheduleVmRequest(
            vm=resource("vms", name),
            template=source.template(),
            requested_host=resource("hosts", host),
            validate_only=True,
        )
        answer = await self._calls.unary(_SCHEDULER.ScheduleVm, request)
        return answer.explanation

    async def show(self, name: str) -> Vm:
        """Returns a VM."""
        return (await self.show_with_claims(name)).vm

    async def show_with_claims(self, name: str) -> scheduler_service_pb2.GetVmResponse:
        """Returns a VM with its claims, and what its host has lost of them."""
        request = scheduler_service_pb2.GetVmRequest(name=resource("vms", name))
        return await self._calls.unary(_SCHEDULER.GetVm, request)

    async def list(
        self,
        *,
        host: str = "",
        project: str = "",
        labels: Iterable[str] = (),
        filter: str = "",
        page_size: int = 0,
    ) -> AsyncIterator[Vm]:
        """Yields all VMs, of a host or of a project, in the order of their names.

        Of `labels`, each `key` or `key=value`, the VMs have all. `filter` is an expression such as
        `state = ERROR`; `docs/filters.md` has the language. They are read page by page; each page
        is consistent in itself.
        """
        selectors = list_of(labels)
        request = scheduler_service_pb2.ListVmsRequest(
            host=resource("hosts", host),
            project=project,
            labels=selectors,
            filter=filter,
            page_size=page_size,
        )
        while True:
            page = await self._calls.unary(_SCHEDULER.ListVms, request)
            for vm in page.vms:
                # A scheduler that does not know labels returns every VM.
                if has_labels(vm, selectors):
                    yield vm
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def migrate(
        self,
        name: str,
        *,
        host: str = "",
        transfer: TransferOverrides | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Moves a VM while it runs, to a host or to the best one."""
        request = wire.MigrateVmRequest(
            vm=resource("vms", name), requested_host=resource("hosts", host), transfer=transfer
        )
        answer = await self._calls.unary(
            _CONDUCTOR.MigrateVm, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    async def explain_migration(
        self, name: str, *, host: str = "", transfer: TransferOverrides | None = None
    ) -> scheduler_service_pb2.Explanation:
        """Returns where a VM would be moved while it runs; nothing is claimed."""
        request = scheduler_service_pb2.ScheduleMigrationRequest(
            vm=resource("vms", name),
            requested_host=resource("hosts", host),
            transfer=transfer,
            validate_only=True,
        )
        return (await self._calls.unary(_SCHEDULER.ScheduleMigration, request)).explanation

    async def confirm_resize(
        self, name: str, *, request_id: str | None = None, timeout: float | None = None
    ) -> AsyncOperation | None:
        """Confirms a resize. Returns what deletes the disks on the source, if there are any."""
        request = wire.ConfirmResizeRequest(vm=resource("vms", name))
        answer = await self._calls.unary(
            _CONDUCTOR.ConfirmResize, request, timeout=timeout, request_id=request_id
        )
        if not answer.HasField("operation"):
            return None
        return AsyncOperation(self._calls, answer.operation)

    async def migrate_cold(
        self,
        name: str,
        *,
        host: str = "",
        verify: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Moves a VM while it does not run: its guest is stopped, and started again if it ran.

        With `verify` its old claim is kept until `confirm_resize` or `revert_resize`.
        """
        request = wire.ResizeVmRequest(
            vm=resource("vms", name),
            requested_host=resource("hosts", host),
            verify=verify,
        )
        answer = await self._calls.unary(
            _CONDUCTOR.ResizeVm, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    async def resize(
        self,
        name: str,
        *,
        flavor: str,
        host: str = "",
        verify: bool = True,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Gives a VM another flavor, maybe on another host; its guest is stopped meanwhile.

        With `verify` its old claim is kept until `confirm_resize` or `revert_resize`.
        """
        request = wire.ResizeVmRequest(
            vm=resource("vms", name),
            flavor=resource("flavors", flavor),
            requested_host=resource("hosts", host),
            verify=verify,
        )
        answer = await self._calls.unary(
            _CONDUCTOR.ResizeVm, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    async def revert_resize(
        self,
        name: str,
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Takes a resize back: the VM is started where it was, as it was."""
        request = wire.RevertResizeRequest(vm=resource("vms", name))
        answer = await self._calls.unary(
            _CONDUCTOR.RevertResize, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    async def stop(
        self,
        name: str,
        *,
        guest_timeout: float | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Stops a VM. It keeps its host, CPUs and disks.

        Its guest may take `guest_timeout` seconds to power off by itself: 60 by default, 0 to
        power it off at once.
        """
        request = wire.StopVmRequest(
            vm=resource("vms", name),
            timeout_ms=(None if guest_timeout is None else int(guest_timeout * 1000)),
        )
        answer = await self._calls.unary(
            _CONDUCTOR.StopVm, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    async def start(
        self,
        name: str,
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Starts a VM where it is."""
        request = wire.StartVmRequest(vm=resource("vms", name))
        answer = await self._calls.unary(
            _CONDUCTOR.StartVm, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    async def reboot(
        self,
        name: str,
        *,
        hard: bool = False,
        guest_timeout: float | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Stops a VM and starts it again; with `hard` it is powered off at once."""
        request = wire.RebootVmRequest(
            vm=resource("vms", name),
            hard=hard,
            timeout_ms=(None if guest_timeout is None else int(guest_timeout * 1000)),
        )
        answer = await self._calls.unary(
            _CONDUCTOR.RebootVm, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    async def rebuild(
        self,
        name: str,
        *,
        images: Iterable[str] = (),
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Recreates the disks of a VM from their images, or from others: they are overwritten."""
        request = wire.RebuildVmRequest(vm=resource("vms", name), images=list(images))
        answer = await self._calls.unary(
            _CONDUCTOR.RebuildVm, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    async def snapshot(
        self,
        name: str,
        *,
        image: str,
        disk: int = 0,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Copies a disk of a VM, by its index, into its host's image directory."""
        request = wire.SnapshotVmRequest(vm=resource("vms", name), disk=disk, image=image)
        answer = await self._calls.unary(
            _CONDUCTOR.SnapshotVm, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    async def shelve(
        self,
        name: str,
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Stops a VM and releases its claim; its disks remain on the host."""
        request = wire.ShelveVmRequest(vm=resource("vms", name))
        answer = await self._calls.unary(
            _CONDUCTOR.ShelveVm, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    async def unshelve(
        self,
        name: str,
        *,
        host: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Starts a shelved VM on a host, or on the best one."""
        request = wire.UnshelveVmRequest(
            vm=resource("vms", name),
            requested_host=resource("hosts", host),
        )
        answer = await self._calls.unary(
            _CONDUCTOR.UnshelveVm, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    async def evacuate(
        self,
        name: str,
        *,
        host: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Starts a VM on another host when its own is proven to be dead."""
        request = wire.EvacuateVmRequest(
            vm=resource("vms", name),
            requested_host=resource("hosts", host),
        )
        answer = await self._calls.unary(
            _CONDUCTOR.EvacuateVm, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    async def delete(
        self,
        name: str,
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncOperation:
        """Stops a VM and takes it away."""
        request = wire.DeleteVmRequest(vm=resource("vms", name))
        answer = await self._calls.unary(
            _CONDUCTOR.DeleteVm, request, timeout=timeout, request_id=request_id
        )
        return AsyncOperation(self._calls, answer.operation)

    async def update(
        self,
        name: str,
        *,
        set_labels: Mapping[str, str] | None = None,
        remove_labels: Iterable[str] = (),
        description: str | None = None,
        protected: bool | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Vm:
        """Changes labels, the description and the protection of a VM, and returns it.

        What is not given stays as it is, other labels too; an empty description removes it. It is
        possible while an operation works on the VM.
        """
        request = scheduler_service_pb2.UpdateVmRequest(
            vm=resource("vms", name),
            set_labels=dict(set_labels or {}),
            remove_labels=list_of(remove_labels),
            description=description,
            protected=protected,
        )
        answer = await self._calls.unary(
            _SCHEDULER.UpdateVm, request, timeout=timeout, request_id=request_id
        )
        return answer.vm

    async def set_restart_policy(
        self,
        name: str,
        policy: RestartPolicy,
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Vm:
        """Sets when a VM is started again by itself, and returns it."""
        request = power_service_pb2.UpdateRestartPolicyRequest(
            vm=resource("vms", name), policy=policy
        )
        answer = await self._calls.unary(
            methods.PowerService.UpdateRestartPolicy,
            request,
            timeout=timeout,
            request_id=request_id,
        )
        return answer.vm

    async def console(
        self, name: str, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[bytes]:
        """Yields what the guest wrote on its serial console, from an offset in bytes on.

        With `follow` it goes on with what the guest writes later.
        """
        request = wire.ReadConsoleRequest(vm=resource("vms", name), offset=offset, follow=follow)
        async for part in self._calls.stream(_CONDUCTOR.ReadConsole, request):
            yield part.data
