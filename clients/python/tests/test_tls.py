"""Both ends are authenticated, as `docs/security.md` describes it."""

import asyncio
import os
import shutil
from collections.abc import Iterator

import pytest
from cluster import Cluster, Part, eventually

import berth_client


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    with Cluster(schedulers=1, is_certified=True) as cluster:
        with cluster.client() as client:
            client.flavors.create("small", vcpus=1, memory_mib=256)
        yield cluster


def test_an_operator_boots_and_migrates(own: Cluster) -> None:
    with own.client() as client:
        client.vms.create("a", flavor="small", kernel="vmlinuz").wait(30)
        client.vms.migrate("a").wait(30)
        assert client.vms.show("a").creator == "operator:ann"
        assert "tls=True" in repr(client)


def test_the_asynchronous_client_does_the_same(own: Cluster) -> None:
    async def boot() -> None:
        async with own.async_client() as client:
            operations = await asyncio.gather(
                *(client.vms.create(f"async-{n}", flavor="small", kernel="k") for n in range(8))
            )
            await asyncio.gather(*operations)

    asyncio.run(boot())


def test_a_reader_may_only_read(own: Cluster) -> None:
    with own.client(**own.files("reader", "rob")) as client:
        assert client.flavors.show("small").vcpus == 1
        for change in (
            lambda: client.flavors.delete("small"),
            lambda: client.vms.create("b", flavor="small", kernel="vmlinuz"),
        ):
            with pytest.raises(berth_client.PermissionDenied) as raised:
                change()
            assert raised.value.reason != raised.value.code


def test_the_environment_names_the_certificates(
    own: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTH_SCHEDULER", ",".join(own.addresses))
    for name, file in own.files().items():
        monkeypatch.setenv(f"BERTH_TLS_{name.upper()}", str(file))
    with berth_client.Client() as client:
        assert client.cluster.status().leader_id


def refused(own: Cluster, why: str, *addresses: str, **files: object) -> None:
    """Checks that nothing can be called, and that the error says why."""
    at = list(addresses) or own.addresses
    with berth_client.Client(at, timeout=0.8, **files) as client:  # type: ignore[arg-type]
        with pytest.raises(berth_client.Unavailable) as raised:
            client.flavors.show("small")
        assert raised.value.reason == "SCHEDULER_UNREACHABLE"
        assert why in raised.value.message
        # Where no connection can be made, nothing can have been done.
        if why:
            with pytest.raises(berth_client.Unavailable):
                client.flavors.create("none", vcpus=1, memory_mib=1)


def test_without_certificates_nothing_is_answered(own: Cluster) -> None:
    refused(own, "")


def test_a_client_of_another_authority_refuses_the_server(own: Cluster) -> None:
    own.certs("init", folder="other")
    own.certs("issue", "--role", "operator", "--name", "eve", folder="other")
    other = own.folder / "other"
    eve = {"cert": other / "operator-eve.pem", "key": other / "operator-eve-key.pem"}
    refused(own, "certificate verify failed", ca=other / "ca.pem", **eve)
    # The server refuses it too, where the client has the right authority.
    refused(own, "", ca=own.files()["ca"], **eve)


def test_a_key_of_another_certificate_is_refused(own: Cluster) -> None:
    files = {**own.files(), "key": own.files("operator", "bob")["key"]}
    refused(own, "mismatch", **files)


def parts(own: Cluster) -> list[Part]:
    return [own.conductors[0], own.agents[0]]


@pytest.mark.parametrize("number", range(2))
def test_a_server_of_another_role_is_no_scheduler(own: Cluster, number: int) -> None:
    other = parts(own)[number]
    role = ("conductor", "agent")[number]
    refused(own, f"is that of {role}:{other.name}", other.address, **own.files())
    # Beside a scheduler it is passed over.
    with berth_client.Client([other.address, *own.addresses], **own.files()) as client:  # type: ignore[arg-type]
        assert client.flavors.show("small").vcpus == 1


def test_a_server_at_another_name_is_refused(own: Cluster) -> None:
    port = own.addresses[0].rpartition(":")[2]
    refused(own, "certificate verify failed", f"localhost:{port}", **own.files())


def test_a_client_goes_on_when_certificates_are_replaced(own: Cluster) -> None:
    with own.client() as client:
        client.flavors.show("small")
        folder, scheduler = own.folder / "certs", own.schedulers[0]
        # The same authority issues another certificate to the same scheduler.
        for end in (".pem", "-key.pem"):
            (folder / f"scheduler-{scheduler.name}{end}").unlink()
        own.certs("issue", "--role", "scheduler", "--name", scheduler.name, "--ip", "127.0.0.1")
        scheduler.kill()
        scheduler.start()
        assert eventually("answer", lambda: client.flavors.show("small")).vcpus == 1


def test_a_key_that_becomes_readable_is_not_used(own: Cluster) -> None:
    files = own.files()
    copied = own.folder / "copied.pem"
    shutil.copyfile(files["key"], copied)
    os.chmod(copied, 0o600)
    with own.client(**{**files, "key": copied}, timeout=0.8) as client:
        os.chmod(copied, 0o644)
        with pytest.raises(berth_client.Unavailable) as raised:
            client.flavors.show("small")
        assert f"may read the private key {copied}" in raised.value.message
