"""Programs are killed and stopped while VMs are booted and moved.

Goal: each boot and each move ends exactly once; nothing is lost or doubled. Method: several threads
or tasks, each with VMs of its own; afterwards the records of all operations and migrations, which
are exactly those that the client began, and the guests that the simulated hypervisors have.

A move that another conductor takes over before its transfer has begun fails, and the VM stays where
it was: then a loop begins another one, as a program would.
"""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from cluster import Cluster, Part, eventually

import berth_client
from berth_client import state_of

LOOPS = 4
VMS = 5


@pytest.fixture
def own(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    # What a conductor leaves behind is taken over while the test waits, if leases are short. They
    # are longer than an election otherwise: no conductor loses one because of it.
    is_short = request.function is test_a_conductor_is_killed
    with Cluster(conductors=2, lease_ttl_ms=2000 if is_short else 10_000) as cluster:
        with cluster.client() as client:
            client.flavors.create("small", vcpus=1, memory_mib=256)
        yield cluster


class Progress:
    """What has been done: counted, so that something happens in the middle of it."""

    def __init__(self) -> None:
        self._done = threading.Semaphore(0)
        self.succeeded: list[str] = []
        self.failed: list[str] = []

    def step(self, operation: str) -> None:
        self.succeeded.append(operation)
        self._done.release()

    def fail(self, error: berth_client.OperationFailed) -> None:
        assert error.reason == "MIGRATION_FAILED", error
        self.failed.append(error.metadata["operation"])

    def wait(self, steps: int) -> None:
        for _ in range(steps):
            assert self._done.acquire(timeout=60), "nothing goes on"


def boot_and_migrate(client: berth_client.Client, names: list[str], progress: Progress) -> None:
    for name in names:
        progress.step(client.vms.create(name, flavor="small", kernel="vmlinuz").wait(60).name)
        while True:
            try:
                progress.step(client.vms.migrate(name).wait(60).name)
                break
            except berth_client.OperationFailed as error:
                progress.fail(error)


def names() -> list[list[str]]:
    return [[f"vm-{loop}-{number}" for number in range(VMS)] for loop in range(LOOPS)]


def check(cluster: Cluster, progress: Progress) -> None:
    """Checks that each VM was booted once, moved once, and runs once."""
    expected = {name for some in names() for name in some}
    once = dict.fromkeys(expected, 1)
    with cluster.client() as client:
        vms = {vm.name.removeprefix("vms/"): vm for vm in client.vms.list(page_size=3)}
        assert vms.keys() == expected
        assert {state_of(vm) for vm in vms.values()} == {"ACTIVE"}
        operations = list(client.operations.list(page_size=7))
        by_end: dict[bool, list[str]] = {True: [], False: []}
        for one in operations:
            assert one.is_done
            by_end[one.message.HasField("succeeded")].append(one.name)
        # Exactly those that the client began have ended, and each as the client knows it.
        assert sorted(by_end[True]) == sorted(progress.succeeded)
        assert sorted(by_end[False]) == sorted(progress.failed)
        succeeded = [one for one in operations if one.name in progress.succeeded]
        for kind in ("boot", "live_migrate"):
            assert Counter(one.vm for one in succeeded if one.kind == kind) == once
        recorded = list(client.migrations.list(page_size=7))
        assert len(recorded) == len(operations) - len(expected)
        migrations = [one for one in recorded if state_of(one) == "COMPLETED"]
        assert Counter(one.vm.removeprefix("vms/") for one in migrations) == once
        assert {state_of(one) for one in recorded} <= {"COMPLETED", "FAILED"}
        for one in migrations:
            assert vms[one.vm.removeprefix("vms/")].host == one.destination != one.source

        def where() -> dict[str, list[str]]:
            guests: dict[str, list[str]] = {}
            for host in ("h1", "h2"):
                for guest in json.loads(cluster.guests(host).read_text()):
                    guests.setdefault(guest["spec"]["vm"], []).append(f"hosts/{host}")
            return guests

        held = {name: [vm.host] for name, vm in vms.items()}
        eventually("guest of each VM where its claim is", lambda: where() == held)


def run(cluster: Cluster, disturb: "list[tuple[int, object]]") -> None:
    """Boots and migrates, and disturbs the cluster after so many steps each."""
    progress = Progress()
    with cluster.client() as client, ThreadPoolExecutor(LOOPS) as threads:
        loops = [threads.submit(boot_and_migrate, client, some, progress) for some in names()]
        for steps, action in disturb:
            progress.wait(steps)
            action()  # type: ignore[operator]
        for loop in loops:
            loop.result(timeout=120)
    check(cluster, progress)


def kill_leader(cluster: Cluster) -> Part:
    leader = cluster.leader()
    leader.kill()
    return leader


def test_the_leader_is_killed(own: Cluster) -> None:
    killed: list[Part] = []
    run(
        own,
        [
            (5, lambda: killed.append(kill_leader(own))),
            (8, lambda: killed.pop().start()),
            (6, lambda: kill_leader(own)),
        ],
    )


def test_a_conductor_is_killed(own: Cluster) -> None:
    run(own, [(5, own.conductors[0].kill), (10, own.conductors[0].start)])


def test_the_leader_hangs(own: Cluster) -> None:
    hung: list[Part] = []

    def stop() -> None:
        hung.append(own.leader())
        hung[0].stop()

    run(own, [(5, stop), (10, lambda: hung[0].go_on())])


def test_the_leader_is_killed_under_an_asynchronous_client(own: Cluster) -> None:
    progress = Progress()

    async def loop(client: berth_client.AsyncClient, some: list[str]) -> None:
        for name in some:
            booting = await client.vms.create(name, flavor="small", kernel="vmlinuz")
            progress.step((await booting.wait(60)).name)
            while True:
                moving = await client.vms.migrate(name)
                assert [state.done async for state in moving][-1]
                try:
                    progress.step((await moving).name)
                    break
                except berth_client.OperationFailed as error:
                    progress.fail(error)

    async def all_at_once() -> None:
        async with own.async_client() as client:
            loops = [asyncio.create_task(loop(client, some)) for some in names()]
            await asyncio.to_thread(progress.wait, 5)
            await asyncio.to_thread(kill_leader, own)
            await asyncio.gather(*loops)

    asyncio.run(all_at_once())
    check(own, progress)
