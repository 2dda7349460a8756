"""Members are learnt, and passed over when they are lost; watches go on at another one."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from cluster import Cluster

import berth_client


@pytest.fixture
def own() -> Iterator[Cluster]:
    with Cluster() as cluster:
        with cluster.client() as client:
            client.flavors.create("small", vcpus=1, memory_mib=256)
        yield cluster


def test_a_member_that_hangs_is_passed_over(own: Cluster) -> None:
    hung = next(part for part in own.schedulers if part is not own.leader())
    hung.stop()
    others = [address for address in own.addresses if address != hung.address]
    # It is the first that a new client tries, and the only one that an old client was given.
    with berth_client.Client([hung.address, *others], timeout=10) as client:
        assert client.flavors.show("small").vcpus == 1
        client.flavors.create("made", vcpus=1, memory_mib=1)
    hung.go_on()


def test_members_are_learnt(own: Cluster) -> None:
    leader = own.leader()
    with berth_client.Client(leader.address) as client:
        assert client.schedulers == [leader.address]
        client.flavors.show("small")
        assert sorted(client.schedulers) == sorted(own.addresses)
        leader.kill()
        assert client.flavors.show("small").vcpus == 1
    with berth_client.Client(leader.address, timeout=5) as client:
        with pytest.raises(berth_client.Unavailable):
            client.flavors.show("small")


def test_a_watch_goes_on_at_another_member(own: Cluster) -> None:
    with own.client() as client:
        changes = client.events.watch(["vm"])
        seen: list[tuple[int, str, bool]] = []
        ready = threading.Event()

        def follow() -> None:
            for change in changes:
                seen.append((change.revision, change.name, change.record is None))
                ready.set()
                if change.record is None and change.name == "vms/last":
                    return

        with ThreadPoolExecutor(1) as thread:
            following = thread.submit(follow)
            for name in ("a", "b", "c", "last"):
                client.vms.create(name, flavor="small", kernel="vmlinuz").wait(60)
                assert ready.wait(30)
                if name == "b":
                    own.leader().kill()
                client.vms.delete(name).wait(60)
            following.result(timeout=60)
        assert len(set(seen)) == len(seen), "nothing is sent twice"
        assert [revision for revision, _, _ in seen] == sorted(revision for revision, _, _ in seen)
        for name in ("a", "b", "c", "last"):
            own_changes = [deleted for _, one, deleted in seen if one == f"vms/{name}"]
            assert own_changes.count(True) == 1 and own_changes[-1], seen
