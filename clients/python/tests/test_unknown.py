"""What a timeout, a cancellation and a lost server mean: not done, or unknown; never a guess."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from cluster import Cluster, eventually

import berth_client
from berth_client import state_of


@pytest.fixture
def own() -> Iterator[Cluster]:
    """A cluster in which a migration takes a while."""
    with Cluster(schedulers=1, transfer_ms=1500) as cluster:
        with cluster.client() as client:
            client.flavors.create("small", vcpus=1, memory_mib=256)
        yield cluster


def boots(client: berth_client.Client, name: str) -> list[str]:
    return [one.name for one in client.operations.list(vm=name) if one.kind == "boot"]


def test_a_conductor_that_hangs_leaves_the_outcome_unknown(own: Cluster) -> None:
    with own.client() as client:
        client.vms.create("first", flavor="small", kernel="vmlinuz").wait(30)
        own.conductors[0].stop()
        began = time.monotonic()
        with pytest.raises(berth_client.OutcomeUnknown) as raised:
            client.vms.create("a", flavor="small", kernel="vmlinuz", timeout=1.0)
        assert time.monotonic() - began < 3
        error = raised.value
        assert error.request_id and f"request_id={error.request_id!r}" in (error.hint or "")
        # What only reads is not in doubt.
        with pytest.raises(berth_client.Unavailable):
            client.call("GetServiceInfo", info(), timeout=1.0)
        own.conductors[0].go_on()
        again = client.vms.create(
            "a", flavor="small", kernel="vmlinuz", request_id=error.request_id
        )
        assert again.wait(30).name
        assert boots(client, "a") == [again.name]


def info() -> object:
    from berth_client import methods

    return methods.ConductorService.GetServiceInfo.request()


def test_a_drain_that_is_in_doubt_is_repeated(own: Cluster) -> None:
    with own.client() as client:
        client.vms.create("f", flavor="small", kernel="vmlinuz", host="h1").wait(30)
        own.conductors[0].stop()
        with pytest.raises(berth_client.OutcomeUnknown) as raised:
            client.hosts.drain("h1", timeout=0.5)
        own.conductors[0].go_on()
        key = raised.value.request_id
        assert client.hosts.drain("h1", request_id=key).wait(30).is_done
        drains = [one for one in client.operations.list() if one.kind == "drain_host"]
        assert len(drains) == 1
        assert client.vms.show("f").host == "hosts/h2"


def test_a_cancelled_task_can_repeat_its_request(own: Cluster) -> None:
    async def cancel_and_repeat() -> str:
        async with own.async_client() as client:
            await (await client.vms.create("first", flavor="small", kernel="vmlinuz"))
            own.conductors[0].stop()
            key = berth_client.new_request_id()
            boot = asyncio.create_task(
                client.vms.create("b", flavor="small", kernel="vmlinuz", request_id=key)
            )
            await asyncio.sleep(0.2)
            boot.cancel()
            with pytest.raises(asyncio.CancelledError):
                await boot
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.vms.create(
                        "b", flavor="small", kernel="vmlinuz", request_id=key
                    )
            own.conductors[0].go_on()
            again = await client.vms.create(
                "b", flavor="small", kernel="vmlinuz", request_id=key
            )
            await again
            return again.name

    name = asyncio.run(cancel_and_repeat())
    with own.client() as client:
        assert boots(client, "b") == [name]


def test_schedulers_that_are_gone_have_done_nothing(own: Cluster) -> None:
    with own.client(timeout=0.8) as used, own.client(timeout=0.8) as new:
        used.flavors.show("small")
        own.schedulers[0].kill()
        with pytest.raises(berth_client.Unavailable):
            # Now it knows that the connection is lost, on which a change could have been sent.
            used.flavors.show("small")
        for client in (used, new):
            with pytest.raises(berth_client.Unavailable) as raised:
                client.flavors.create("none", vcpus=1, memory_mib=1)
            assert raised.value.reason == "SCHEDULER_UNREACHABLE"
            with pytest.raises(berth_client.Unavailable):
                client.vms.create("c", flavor="small", kernel="vmlinuz")
        own.schedulers[0].start()
        eventually("scheduler", lambda: used.cluster.status().leader_id)
        with pytest.raises(berth_client.NotFound):
            used.flavors.show("none")


def test_schedulers_that_hang_leave_the_outcome_unknown(own: Cluster) -> None:
    with own.client() as client:
        client.flavors.show("small")
        own.schedulers[0].stop()
        with pytest.raises(berth_client.Unavailable):
            client.call("ListFlavors", list_flavors(), timeout=0.5)
        with pytest.raises(berth_client.OutcomeUnknown) as raised:
            client.flavors.create("once", vcpus=1, memory_mib=1, timeout=0.5)
        own.schedulers[0].go_on()
        key = raised.value.request_id
        for _ in range(2):
            made = client.flavors.create("once", vcpus=1, memory_mib=1, request_id=key)
            assert made.name == "flavors/once"
        with pytest.raises(berth_client.AlreadyExists):
            client.flavors.create("once", vcpus=1, memory_mib=1)


def list_flavors() -> object:
    from berth_client import methods

    return methods.SchedulerService.ListFlavors.request()


def test_a_wait_that_ends_early_ends_no_operation(own: Cluster) -> None:
    with own.client(timeout=2.0) as client:
        client.vms.create("d", flavor="small", kernel="vmlinuz").wait(30)
        moving = client.vms.migrate("d")
        for wait in (moving.wait, lambda timeout: list(moving.progress(timeout))):
            with pytest.raises(berth_client.WaitTimeout) as raised:
                wait(0.1)
            assert isinstance(raised.value, TimeoutError)
            assert raised.value.metadata["operation"] == moving.name
        again = client.operations.get(moving.name)
        assert not again.is_done
        # No scheduler answers any more, and the move goes on.
        own.schedulers[0].kill()
        for wait in (moving.wait, lambda: list(moving)):
            with pytest.raises(berth_client.OutcomeUnknown) as lost:
                wait()
            assert moving.name in (lost.value.hint or "")
        own.schedulers[0].start()
        eventually("scheduler", lambda: client.cluster.status().leader_id)
        assert again.wait(30).is_done
        assert state_of(client.migrations.show(again.migration)) == "COMPLETED"


def test_an_operation_is_cancelled(own: Cluster) -> None:
    with own.client() as client:
        client.vms.create("e", flavor="small", kernel="vmlinuz", host="h1").wait(30)
        moving = client.vms.migrate("e").cancel()
        with pytest.raises(berth_client.OperationFailed) as raised:
            moving.wait(30)
        assert raised.value.metadata["operation"] == moving.name
        vm = client.vms.show("e")
        assert (state_of(vm), vm.host) == ("ACTIVE", "hosts/h1")
        aborted = client.vms.migrate("e")
        client.migrations.abort(aborted.migration)
        with pytest.raises(berth_client.OperationFailed):
            aborted.wait(30)


def test_long_responses_are_refused(own: Cluster) -> None:
    with own.client(response_bytes_max=2000) as client:
        specs = {"hw:numa_nodes": "1", **{f"x:{number}": "x" * 200 for number in range(20)}}
        # It was done, and its response was not taken: who only has that does not know it.
        with pytest.raises(berth_client.OutcomeUnknown) as raised:
            client.flavors.create("wide", vcpus=1, memory_mib=1, extra_specs=specs)
        with pytest.raises(berth_client.ResourceExhausted):
            list(client.flavors.list())
    with own.client() as client:
        made = client.flavors.create(
            "wide", vcpus=1, memory_mib=1, extra_specs=specs, request_id=raised.value.request_id
        )
        assert len(made.extra_specs) == 21
