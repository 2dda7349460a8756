"""Answers get lost after the request was carried out: it is carried out once all the same.

Method: a gate to the scheduler, and one to the conductor, that cuts a connection instead of passing
the answer on.
"""

import asyncio
from collections.abc import Iterator

import pytest
from cluster import Cluster
from gate import Gate

import berth_client
from berth_client import methods, types


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    with Cluster(schedulers=1, is_gated=True) as cluster:
        with cluster.client() as client:
            client.flavors.create("small", vcpus=1, memory_mib=256)
        yield cluster


@pytest.fixture
def gate(own: Cluster) -> Iterator[Gate]:
    with Gate(own.addresses[0]) as gate:
        yield gate


def test_a_scheduler_answers_again(gate: Gate) -> None:
    with berth_client.Client(gate.address) as client:
        client.flavors.show("small")
        gate.lose_next_answer()
        # Otherwise it would be refused, as there is one of this name by then.
        assert client.flavors.create("once", vcpus=1, memory_mib=1).name == "flavors/once"
        assert gate.has_lost
    # The one before has gone on at the scheduler itself, which it has learnt.
    with berth_client.Client(gate.address) as client:
        client.flavors.show("once")
        gate.lose_next_answer()
        client.flavors.delete("once")
        assert gate.has_lost
        with pytest.raises(berth_client.NotFound):
            client.flavors.show("once")


def test_a_conductor_answers_again(own: Cluster) -> None:
    with own.client() as client:
        conductor = own.gates[0]
        for name in ("a", "b", "c"):
            client.vms.create(f"first-{name}", flavor="small", kernel="vmlinuz").wait(30)
            conductor.lose_next_answer()
            booting = client.vms.create(name, flavor="small", kernel="vmlinuz")
            assert conductor.has_lost
            booting.wait(30)
            conductor.lose_next_answer()
            moving = client.vms.migrate(name).wait(30)
            assert conductor.has_lost
            kinds = {one.name: one.kind for one in client.operations.list(vm=name)}
            assert kinds == {booting.name: "boot", moving.name: "live_migrate"}


def test_the_asynchronous_client_does_the_same(own: Cluster) -> None:
    async def boot() -> None:
        async with own.async_client() as client:
            await (await client.vms.create("async-1", flavor="small", kernel="vmlinuz"))
            own.gates[0].lose_next_answer()
            await (await client.vms.create("async-2", flavor="small", kernel="vmlinuz"))
            assert own.gates[0].has_lost

    asyncio.run(boot())


def test_a_drain_is_begun_once(own: Cluster) -> None:
    with own.client() as client:
        client.call("GetServiceInfo", methods.ConductorService.GetServiceInfo.request())
        own.gates[0].lose_next_answer()
        draining = client.hosts.drain("h2").wait(30)
        assert own.gates[0].has_lost
        drains = [one.name for one in client.operations.list() if one.kind == "drain_host"]
        assert drains == [draining.name]
        client.hosts.uncordon("h2")


def test_what_has_no_request_id_is_not_repeated(gate: Gate) -> None:
    set_level = methods.LogService.SetLogLevel
    request = set_level.request(filter="info")
    request.duration.FromSeconds(10)
    with berth_client.Client(gate.address) as client:
        client.call(set_level, request)
        gate.lose_next_answer()
        with pytest.raises(berth_client.OutcomeUnknown) as raised:
            client.call(set_level, request)
        assert raised.value.request_id is None
    # A read is.
    with berth_client.Client(gate.address) as client:
        client.cluster.status()
        gate.lose_next_answer()
        assert client.flavors.show("small").vcpus == 1
        assert gate.has_lost


def test_a_watch_goes_on_where_it_was(gate: Gate, own: Cluster) -> None:
    with berth_client.Client(gate.address) as watching, own.client() as client:
        client.vms.create("watched", flavor="small", kernel="vmlinuz").wait(30)
        changes = watching.events.watch(["vm"], names=["vms/watched"])
        seen = [next(changes)]
        # With a change it is known that the snapshot is complete.
        client.vms.set_restart_policy("watched", types.RestartPolicy(priority=7))
        seen.append(next(changes))
        gate.lose_next_answer()
        client.vms.migrate("watched").wait(30)
        client.vms.delete("watched").wait(30)
        for change in changes:
            seen.append(change)
            if change.record is None:
                break
        assert gate.has_lost
        assert [change.is_snapshot for change in seen] == [True] + [False] * (len(seen) - 1)
        revisions = [change.revision for change in seen]
        assert revisions == sorted(set(revisions)), "nothing is sent twice"
        # Each change of the record has a generation of its own: none is omitted.
        records = [change.record for change in seen if isinstance(change.record, types.Vm)]
        generations = [record.generation for record in records]
        assert generations == list(range(generations[0], generations[0] + len(records)))
        assert len(records) == len(seen) - 1 > 4
