"""Every method of every public service is within reach, and is known for what it does.

Method: the methods that were generated, a cluster of its own, and the access table of
`docs/security.md`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster

import berth_client
from berth_client import methods
from berth_client._method import AnyMethod, StreamMethod, find

SECURITY = Path(__file__).parents[3] / "docs" / "security.md"
# Changes that carry no request id. They are not repeated once they may have been carried out.
UNKEYED = {
    "ClusterService/AddMember", "ClusterService/CreatePageLogin", "ClusterService/JoinCluster",
    "ClusterService/PromoteMember", "ClusterService/RemoveMember",
    "ClusterService/TransferLeadership", "ClusterService/UpdateMember",
    "ConductorService/CopyImage", "ConductorService/DownloadImage", "HostService/ReportErasures",
    "HostService/ReportGuests", "HostService/ReportHost",
    "ImageService/GrantImage", "LogService/ResetLogLevel", "LogService/SetLogLevel", "MoveService/MoveDrained",
    "MoveService/RecordDrained", "VolumeService/ReportVolumes",
}


def short(method: AnyMethod) -> str:
    return method.path.rpartition(".")[2]


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A cluster that the requests of this test may change."""
    with Cluster(schedulers=1, hosts=1) as cluster:
        yield cluster


@pytest.mark.parametrize("method", methods.ALL, ids=short)
def test_every_method_gets_a_defined_answer(own: Cluster, method: AnyMethod) -> None:
    request = method.request()
    with own.client(timeout=10.0) as client:
        try:
            if isinstance(method, StreamMethod):
                first = next(iter(client.stream(method, request, timeout=10.0)), None)
                assert first is None or isinstance(first, method.response)
            else:
                assert isinstance(client.call(short(method), request), method.response)
        except berth_client.BerthError as error:
            # A refusal of Berth itself: its reason is not only the name of a code.
            assert error.reason != error.code, error
            unexpected = (
                berth_client.Unavailable, berth_client.OutcomeUnknown,
                berth_client.Unimplemented, berth_client.Internal,
            )
            assert not isinstance(error, unexpected), error


def test_the_cluster_has_survived_it(own: Cluster) -> None:
    with own.client() as client:
        assert client.cluster.status().leader_id


def access() -> dict[str, set[str]]:
    """Returns who may call which method, by the document."""
    table: dict[str, set[str]] = {}
    for line in SECURITY.read_text().splitlines():
        row = re.fullmatch(r"\| `berth\.\w+\.v1\.(\w+)` \| (.*) \| (.*) \|", line)
        if row:
            for method in row[2].split(", "):
                table[f"{row[1]}/{method}"] = set(row[3].split(", "))
    return table


@pytest.mark.parametrize("method", methods.ALL, ids=short)
def test_a_read_is_what_readers_may_call(method: AnyMethod) -> None:
    # `Backup` and diagnostics change nothing, and show what readers may not see. The agents'
    # questions change nothing either.
    secret = {
        "ClusterService/Backup", "ClusterService/GetDiagnostics", "ConductorService/CheckHosts",
        "ConductorService/ReadConsole", "HostService/CompareDomains", "HostService/ExpectDomains",
        "HostService/VerifyFence",
    }
    allowed = access()[short(method)]
    may_read = bool(allowed & {"reader", "everybody"})
    assert method.is_read == (may_read or short(method) in secret)


def test_the_access_table_has_no_other_methods() -> None:
    internal = {"ComputeAgentService", "VolumeAgentService", "RaftService"}
    public = {name for name in access() if name.partition("/")[0] not in internal}
    # Their requests are a stream, which is no method of a client.
    public -= {"ConductorService/AttachConsole", "ConductorService/AddImage"}
    assert public == {short(method) for method in methods.ALL}


@pytest.mark.parametrize("method", methods.ALL, ids=short)
def test_every_change_has_a_request_id_but_these(method: AnyMethod) -> None:
    is_unkeyed = not method.is_read and not method.is_keyed
    assert is_unkeyed == (short(method) in UNKEYED)


def test_methods_have_names() -> None:
    assert find("GetVm", methods.ALL) is methods.SchedulerService.GetVm
    assert find("MoveService/ConfirmResize", methods.ALL) is methods.MoveService.ConfirmResize
    path = "/berth.move.v1.None/None"
    for wrong in ("ConfirmResize", "Nothing", "", "/", path, "etVm"):
        with pytest.raises(ValueError):
            find(wrong, methods.ALL)
    for method in methods.ALL:
        assert find(method.path, methods.ALL) is method
        assert find(short(method), methods.ALL) is method


def test_a_wrong_message_is_a_mistake_of_the_program(client: berth_client.Client) -> None:
    request = methods.SchedulerService.ListVms.request()
    with pytest.raises(TypeError):
        client.call("GetVm", request)
    with pytest.raises(TypeError):
        client.call("Watch", methods.EventService.Watch.request())
    with pytest.raises(TypeError):
        client.stream("ListVms", request)
    with pytest.raises(TypeError):
        client.call(methods.SchedulerService.ListVms, request, request_id="x")
