"""VMs are booted, moved, listed and deleted, with and without `asyncio`."""

import asyncio

import pytest
from cluster import Cluster

import berth_client
from berth_client import Client, methods, state_of, types


def boot(client: Client, name: str, **more: object) -> berth_client.Operation:
    given = {"flavor": "small", "kernel": "vmlinuz", "initrd": "initrd", **more}
    return client.vms.create(name, **given)  # type: ignore[arg-type]


def test_a_vm_is_booted_moved_stopped_and_deleted(client: Client) -> None:
    operation = boot(client, "life", host="h1")
    assert (operation.kind, operation.vm) == ("boot", "life")
    states = list(operation)
    assert states[-1].done
    assert [len(state.log) for state in states] == sorted({len(state.log) for state in states})
    assert operation.wait().is_done
    vm = client.vms.show("vms/life")
    assert (state_of(vm), vm.host) == ("ACTIVE", "hosts/h1")

    moved = client.vms.migrate("life").wait(30)
    assert client.vms.show("life").host == "hosts/h2"
    migration = client.migrations.show(moved.migration)
    assert (state_of(migration), migration.source) == ("COMPLETED", "hosts/h1")
    assert [one.name for one in client.migrations.list(vm="life")] == [migration.name]

    client.vms.stop("life", guest_timeout=0).wait(30)
    assert state_of(client.vms.show("life")) == "STOPPED"
    client.vms.migrate_cold("life", host="h1").wait(30)
    client.vms.start("life").wait(30)
    client.vms.reboot("life", hard=True).wait(30)
    assert state_of(client.vms.show("life")) == "ACTIVE"
    client.vms.shelve("life").wait(30)
    client.vms.unshelve("life", host="h2").wait(30)
    vm = client.vms.set_restart_policy("life", types.RestartPolicy(on_crash=2))
    assert vm.restart_policy.on_crash == types.RestartPolicy.ACTION_RESTART

    client.flavors.create("medium", vcpus=2, memory_mib=512)
    client.vms.resize("life", flavor="medium", verify=True).wait(30)
    assert state_of(client.vms.show("life")) == "RESIZED"
    client.vms.revert_resize("life").wait(30)
    client.vms.resize("life", flavor="medium").wait(30)
    confirmed = client.vms.confirm_resize("life")
    if confirmed is not None:
        confirmed.wait(30)
    assert client.vms.show("life").spec.flavor.name.endswith("medium")

    client.vms.delete("life").wait(30)
    with pytest.raises(berth_client.NotFound) as raised:
        client.vms.show("life")
    assert raised.value.reason == "VM_NOT_FOUND"
    kinds = [one.kind for one in client.operations.list(vm="life")]
    assert kinds.count("boot") == kinds.count("delete") == 1
    history = list(client.events.history("vms/life"))
    assert history[0].command and len(history) > 10
    assert not list(client.operations.list(vm="life", running=True))


def test_lists_have_pages(client: Client) -> None:
    names = [f"page-{number}" for number in range(7)]
    for operation in [boot(client, name, project="pages") for name in names]:
        operation.wait(30)
    for page_size in (0, 1, 2, 3, 7, 100):
        listed = client.vms.list(project="pages", page_size=page_size)
        assert [vm.name for vm in listed] == [f"vms/{name}" for name in names]
    assert [one.host.name for one in client.hosts.list(page_size=1)] == ["hosts/h1", "hosts/h2"]
    flavors = [flavor.name for flavor in client.flavors.list(page_size=1)]
    assert {"flavors/big", "flavors/small"} <= set(flavors)
    # A list that is not read to its end is no open call.
    next(iter(client.vms.list(page_size=1)))
    for name in names:
        client.vms.delete(name).wait(30)


def test_refusals_have_reasons_and_hints(client: Client) -> None:
    with pytest.raises(berth_client.NoValidHost) as raised:
        boot(client, "large", flavor="big")
    error = raised.value
    assert (error.code, error.reason) == ("RESOURCE_EXHAUSTED", "NO_VALID_HOST")
    assert error.hint and error.hint in str(error)
    assert dict(error.causes) == {"RESOURCE_VCPU": 2}
    assert {host.host for host in error.hosts} == {"h1", "h2"}
    assert all(host.requested == 64 and host.available < 64 for host in error.hosts)
    # The same without any intention to boot.
    with pytest.raises(berth_client.NoValidHost) as raised:
        client.vms.explain("large", flavor="big")
    assert raised.value.causes == error.causes
    chosen = client.vms.explain("fits", flavor="small")
    assert chosen.host in ("hosts/h1", "hosts/h2")
    with pytest.raises(berth_client.NotFound):
        client.vms.show("fits")

    boot(client, "twice").wait(30)
    with pytest.raises(berth_client.AlreadyExists) as exists:
        boot(client, "twice")
    assert exists.value.reason == "VM_EXISTS"
    with pytest.raises(berth_client.InvalidArgument) as invalid:
        client.vms.create("nothing", flavor="small")
    assert invalid.value.reason == "NO_BOOT_SOURCE"
    with pytest.raises(berth_client.FailedPrecondition):
        client.vms.confirm_resize("twice")
    with pytest.raises(berth_client.InvalidArgument):
        client.vms.list(page_size=-1).__next__()
    client.vms.delete("twice").wait(30)


def test_a_request_id_makes_a_request_once(client: Client) -> None:
    key = berth_client.new_request_id()
    first, again = (boot(client, "once", request_id=key) for _ in range(2))
    assert first.name == again.name
    with pytest.raises(berth_client.InvalidArgument) as raised:
        boot(client, "other", request_id=key)
    assert raised.value.reason == "REQUEST_ID_REUSED"
    first.wait(30)
    client.vms.delete("once").wait(30)


def test_hosts_are_cordoned_and_drained(client: Client) -> None:
    boot(client, "moves", host="h1").wait(30)
    assert client.hosts.cordon("h1").cordoned
    # One host that is named refuses for a reason of its own.
    with pytest.raises(berth_client.FailedPrecondition) as raised:
        boot(client, "stays", host="h1")
    assert (raised.value.reason, raised.value.hosts[0].host) == ("HOST_CORDONED", "h1")
    assert not client.hosts.uncordon("h1").cordoned
    assert [move.vm for move in client.hosts.plan_drain("h1").moves] == ["vms/moves"]
    key = berth_client.new_request_id()
    first, again = (client.hosts.drain("h1", request_id=key) for _ in range(2))
    assert first.name == again.name
    assert first.wait(30).kind == "drain_host"
    assert client.vms.show("moves").host == "hosts/h2"
    assert not client.hosts.show("h1").claims
    client.hosts.uncordon("h1")
    client.vms.delete("moves").wait(30)
    with pytest.raises(berth_client.NotFound):
        client.hosts.drain("h9")


def test_changes_are_watched(client: Client) -> None:
    boot(client, "seen").wait(30)
    changes = client.events.watch(["vm"], names=["vms/seen"])
    first = next(changes)
    assert (first.kind, first.name, first.is_snapshot) == ("VM", "vms/seen", True)
    assert isinstance(first.record, types.Vm)
    client.vms.migrate("seen").wait(30)
    client.vms.delete("seen").wait(30)
    states = []
    for change in changes:
        if change.record is None:
            break
        states.append(state_of(change.record))  # type: ignore[arg-type]
    assert states == ["MIGRATING", "ACTIVE", "DELETING"]
    changes.close()  # type: ignore[attr-defined]
    with pytest.raises(ValueError):
        next(client.events.watch(["nothing"]))


def test_a_flavor_is_made_and_deleted(client: Client) -> None:
    made = client.flavors.create("gone", vcpus=1, memory_mib=1, extra_specs={"hw:numa_nodes": "1"})
    assert client.flavors.show("gone") == made
    client.flavors.delete("gone")
    with pytest.raises(berth_client.NotFound) as raised:
        client.flavors.delete("gone")
    assert raised.value.reason == "FLAVOR_NOT_FOUND"


def test_any_method_can_be_called(client: Client) -> None:
    request = methods.SchedulerService.GetFlavor.request(name="flavors/small")
    typed = client.call(methods.SchedulerService.GetFlavor, request)
    assert typed.flavor.vcpus == 1
    assert client.call("GetFlavor", request).flavor == typed.flavor
    key = methods.ConductorService.GetServiceInfo
    assert client.call(key, key.request()).name == "services/c1"


def test_disks_have_formats() -> None:
    assert types.disk("a.qcow2", 1).format == types.Disk.FORMAT_QCOW2
    assert types.disk("a.img", 1).format == types.Disk.FORMAT_RAW
    assert not types.disk(None, 1).HasField("image")
    assert types.disk("a.img", 1, "qcow2").format == types.Disk.FORMAT_QCOW2
    with pytest.raises(ValueError):
        types.disk("a", 1, "vmdk")


def test_the_asynchronous_client_does_the_same(cluster: Cluster) -> None:
    async def life(client: berth_client.AsyncClient, name: str) -> list[str]:
        operation = await client.vms.create(name, flavor="small", kernel="vmlinuz")
        seen = [state.done async for state in operation]
        assert seen[-1] and not any(seen[:-1])
        await (await client.vms.migrate(name))
        states = [state_of(await client.vms.show(name))]
        with pytest.raises(berth_client.AlreadyExists):
            await client.vms.create(name, flavor="small", kernel="vmlinuz")
        await (await client.vms.delete(name)).wait(30)
        with pytest.raises(berth_client.NotFound):
            await client.vms.show(name)
        return states

    async def all_at_once() -> None:
        async with cluster.async_client() as client:
            names = [f"async-{number}" for number in range(8)]
            lives = await asyncio.gather(*(life(client, name) for name in names))
            assert lives == [["ACTIVE"]] * 8
            with pytest.raises(berth_client.NoValidHost):
                await client.vms.explain("large", flavor="big")
            assert [host.host.name async for host in client.hosts.list()] == [
                "hosts/h1", "hosts/h2",
            ]
            changes = client.events.watch(["host"])
            assert (await anext(changes)).kind == "HOST"
            await changes.aclose()  # type: ignore[attr-defined]
            drained = await (await client.hosts.drain("h1")).wait(30)
            assert drained.is_done
            await client.hosts.uncordon("h1")
            assert (await client.cluster.status()).leader_id

    asyncio.run(all_at_once())


def test_labels_and_the_protection_are_changed(client: Client) -> None:
    written = {"labels": {"team": "blue", "tier": "1"}, "description": "orders", "protected": True}
    boot(client, "written", **written).wait(30)
    vm = client.vms.show("written")
    assert dict(vm.labels) == written["labels"]
    assert (vm.description, vm.protected) == ("orders", True)
    with pytest.raises(berth_client.FailedPrecondition) as raised:
        client.vms.delete("written")
    assert raised.value.reason == "VM_PROTECTED"
    assert "--unprotect" in (raised.value.hint or "")
    vm = client.vms.update("written", set_labels={"team": "red"}, remove_labels=["tier"])
    assert (dict(vm.labels), vm.description, vm.protected) == ({"team": "red"}, "orders", True)
    for labels, expected in [
        (["team"], ["vms/written"]), (["team=red"], ["vms/written"]), (["team=blue"], []),
        (["team", "tier"], []),
    ]:
        assert [vm.name for vm in client.vms.list(labels=labels)] == expected
    for selected, expected in [
        ("labels.team = red", ["vms/written"]), ("labels.team = blue", []),
        ("labels:team AND spec.flavor.vcpus > 100", []),
    ]:
        assert [vm.name for vm in client.vms.list(filter=selected)] == expected
    assert [host.host.name for host in client.hosts.list(filter="host.name = nothing")] == []
    for listed in (client.operations, client.migrations, client.flavors):
        assert list(listed.list(filter='name = "nothing"')) == []
        with pytest.raises(berth_client.InvalidArgument) as refused:
            list(listed.list(filter="nothing = 1"))
        assert "at byte 1" in str(refused.value)
    with pytest.raises(TypeError):
        list(client.vms.list(labels="team"))
    with pytest.raises(berth_client.InvalidArgument):
        client.vms.update("written", set_labels={"not a key": "1"})
    vm = client.vms.update("written", description="", protected=False)
    assert (vm.description, vm.protected) == ("", False)
    client.vms.delete("written").wait(30)


def test_a_client_that_is_closed_makes_no_calls(cluster: Cluster) -> None:
    client = cluster.client()
    client.cluster.status()
    client.close()
    client.close()
    with pytest.raises(RuntimeError):
        client.cluster.status()
