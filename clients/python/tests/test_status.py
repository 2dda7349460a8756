"""What a failed call states, whichever server answered it."""

import pickle

import grpc
import pytest
from berth_client.proto.type.v1 import refusal_pb2
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from berth_client import BerthError, NoValidHost, errors
from berth_client._status import Failure, read_failure


class Ended(grpc.RpcError):
    """A call that ended with a status."""

    def __init__(self, code: grpc.StatusCode, message: str | None, trailers: object) -> None:
        self._all = (code, message, trailers)

    def code(self) -> grpc.StatusCode:
        return self._all[0]

    def details(self) -> str | None:
        return self._all[1]

    def trailing_metadata(self) -> object:
        return self._all[2]


def read(code: grpc.StatusCode, *details: object, message: str | None = "no") -> Failure:
    packed = []
    for detail in details:
        packed.append(any_pb2.Any())
        packed[-1].Pack(detail)
    status = status_pb2.Status(details=packed).SerializeToString()
    return read_failure(Ended(code, message, (("grpc-status-details-bin", status),)))


@pytest.mark.parametrize("code", [one for one in grpc.StatusCode if one.name != "OK"])
def test_every_code_has_an_error(code: grpc.StatusCode) -> None:
    info = error_details_pb2.ErrorInfo(
        domain="berth", reason="WHY", metadata={"hint": "do it", "vm": "a"}
    )
    failure = read(code, info)
    error = errors.error_of(failure.stated(), "id")
    assert type(error) is not BerthError
    assert (error.code, error.reason, error.hint) == (code.name, "WHY", "do it")
    assert (dict(error.metadata), error.request_id) == ({"vm": "a"}, "id")
    assert str(error) == "no (WHY)\nhint: do it"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.refusal, again.request_id) == (type(error), error.refusal, "id")


def test_a_whole_refusal_is_read() -> None:
    wire = refusal_pb2.Refusal(
        code=refusal_pb2.Refusal.CODE_RESOURCE_EXHAUSTED, reason="NO_VALID_HOST", message="none",
        hint="add a host", causes={"DEDICATED_CPUS": 3},
        hosts=[
            refusal_pb2.HostRefusal(
                host="hosts/h1", cause="DEDICATED_CPUS", message="two are missing",
                missing=refusal_pb2.Shortfall(resource="dedicated CPUs", requested=4, available=2),
            )
        ],
    )
    error = errors.error_of(read(grpc.StatusCode.RESOURCE_EXHAUSTED, wire).stated())
    assert isinstance(error, NoValidHost)
    assert (error.hint, dict(error.causes)) == ("add a host", {"DEDICATED_CPUS": 3})
    nearest = error.hosts[0]
    assert (nearest.host, nearest.resource, nearest.requested, nearest.available) == (
        "h1", "dedicated CPUs", 4, 2,
    )
    # A code of a newer server.
    wire.code = 99  # type: ignore[assignment]
    assert read(grpc.StatusCode.ABORTED, wire).stated().code == "ABORTED"


def test_what_is_not_ours_is_no_refusal() -> None:
    other = error_details_pb2.ErrorInfo(domain="example.org", reason="WHY")
    for failure in (
        read(grpc.StatusCode.UNAVAILABLE, other),
        read_failure(Ended(grpc.StatusCode.UNAVAILABLE, "no", None)),
        read_failure(
            Ended(grpc.StatusCode.UNAVAILABLE, "no", (("grpc-status-details-bin", b"\xff"),))
        ),
    ):
        assert failure.refusal is None
        assert failure.is_unanswered
        assert failure.stated().reason == "UNAVAILABLE"


def test_messages_are_bounded() -> None:
    failure = read_failure(Ended(grpc.StatusCode.UNKNOWN, "x" * 100_000, None))
    assert len(failure.message) <= 2048
    assert read_failure(Ended(grpc.StatusCode.UNKNOWN, None, None)).message == "UNKNOWN"


@pytest.mark.parametrize("reason", sorted(errors.UNKNOWN))
@pytest.mark.parametrize("code", ["UNAVAILABLE", "FAILED_PRECONDITION", "INTERNAL"])
def test_reasons_that_state_unknown_have_their_error_whatever_the_code(
    reason: str, code: str
) -> None:
    error = errors.error_of(errors.Refusal(code, reason, "who knows"), "id")
    assert isinstance(error, errors.OutcomeUnknown)
