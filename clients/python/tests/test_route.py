"""Which attempts a call makes, and which error it ends with.

Method: the decisions alone, with every order of kinds of answers, and a clock that is a number.
"""

import itertools

import pytest
from berth_client._sync.calls import broken

from berth_client import BerthError, OutcomeUnknown, Unavailable
from berth_client._route import SILENCE_MAX, Attempts, Call
from berth_client._status import Failure
from berth_client.errors import Refusal

ALL = ["a:1", "b:1", "c:1"]


def stated(reason: str, code: str = "UNAVAILABLE", **metadata: str) -> Failure:
    return Failure(code, reason, Refusal(code, reason, reason, None, metadata), False, True)


FOLLOWER = stated("NOT_LEADER")
UNKNOWN = stated("OUTCOME_UNKNOWN")
BROKEN = Failure("UNAVAILABLE", "Socket closed", None, False)
REFUSED = Failure("UNAVAILABLE", "Connection refused", None, True)
LATE = Failure("DEADLINE_EXCEEDED", "Deadline Exceeded", None, False)
OTHER_KIND = Failure("UNIMPLEMENTED", "", None, False)
# Each failure after which there is another attempt, and whether it leaves a change in doubt.
KINDS = [(FOLLOWER, False), (UNKNOWN, True), (BROKEN, True), (REFUSED, False), (LATE, True)]
READ = Call(changes=False, request_id=None, at_conductor=False)
KEYED = Call(changes=True, request_id="id", at_conductor=False)
UNKEYED = Call(changes=True, request_id=None, at_conductor=False)


def attempts(call: Call, deadline: float = 15.0, first: str = "a:1") -> Attempts:
    return Attempts(call, lambda: ALL, first, 0.0, deadline)


def end(call: Call, failures: list[Failure], step: float = 0.5) -> tuple[BerthError, int]:
    """Returns how a call ends that meets these failures, the last again and again; and when."""
    made, now = attempts(call), 0.0
    for count in itertools.count(1):
        failure = failures[min(count, len(failures)) - 1]
        try:
            now += made.failed(failure, now) + step
        except BerthError as error:
            return error, count
    raise AssertionError("it goes on for ever")


@pytest.mark.parametrize("order", list(itertools.product(KINDS, repeat=3)))
def test_a_call_that_is_given_up_in_doubt_says_so(order: list[tuple[Failure, bool]]) -> None:
    failures = [failure for failure, _ in order]
    is_in_doubt = any(doubt for _, doubt in order)
    error, count = end(KEYED, failures)
    assert count > 3
    assert isinstance(error, OutcomeUnknown) == is_in_doubt
    assert error.request_id == "id"
    if is_in_doubt and failures[-1] is not UNKNOWN:
        assert error.hint is not None and "request_id='id'" in error.hint
    # A read changes nothing, and is never in doubt, unless a server says so itself.
    error, _ = end(READ, failures)
    assert isinstance(error, Unavailable)
    # Without an id the first attempt that may have been carried out is the last.
    error, count = end(UNKEYED, failures)
    assert isinstance(error, OutcomeUnknown) == is_in_doubt
    if is_in_doubt:
        assert count == 1 + [doubt for _, doubt in order].index(True)


def test_an_answer_ends_the_call() -> None:
    for code in ("NOT_FOUND", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"):
        error, count = end(KEYED, [FOLLOWER, stated("NO", code)])
        assert (error.reason, error.code, count) == ("NO", code, 2)


def test_a_refusal_before_the_decision_decides_nothing_about_an_earlier_attempt() -> None:
    refusal = Refusal("PERMISSION_DENIED", "EXPIRED", "it has expired")
    expired = Failure("PERMISSION_DENIED", "it has expired", refusal, False, False)
    for earlier, _ in KINDS:
        is_in_doubt = earlier in (UNKNOWN, BROKEN, LATE)
        error, _ = end(KEYED, [earlier, expired])
        assert isinstance(error, OutcomeUnknown) == is_in_doubt, earlier
        # What the state answers to the repetition is the outcome.
        error, _ = end(KEYED, [earlier, stated("VM_EXISTS", "ALREADY_EXISTS")])
        assert error.code == "ALREADY_EXISTS"


def test_a_stream_that_breaks_is_no_answer_to_a_change() -> None:
    for failure in (BROKEN, LATE, REFUSED):
        error = broken(KEYED, failure)
        assert isinstance(error, OutcomeUnknown)
        assert error.request_id == "id"
        assert isinstance(broken(UNKEYED, failure), OutcomeUnknown)
        assert not isinstance(broken(READ, failure), OutcomeUnknown)
    assert broken(READ, BROKEN).reason == "STREAM_BROKEN"
    assert broken(READ, LATE).code == "DEADLINE_EXCEEDED"
    assert broken(KEYED, stated("NO", "NOT_FOUND")).code == "NOT_FOUND"


def test_what_no_server_of_berth_answered_is_unknown() -> None:
    proxy = Failure("RESOURCE_EXHAUSTED", "too large", None, False)
    error, count = end(KEYED, [proxy])
    assert (type(error), count) == (OutcomeUnknown, 1)
    error, count = end(READ, [proxy])
    assert (error.code, count) == ("RESOURCE_EXHAUSTED", 1)


def test_every_endpoint_is_tried_and_hints_are_followed_at_once() -> None:
    made = attempts(READ)
    seen = []
    for failure in (BROKEN, FOLLOWER, FOLLOWER, stated("NOT_LEADER", leader="http://d:1"), BROKEN):
        wait = made.failed(failure, 0.0)
        seen.append((made.address, wait > 0))
    assert seen == [("b:1", False), ("c:1", False), ("a:1", True), ("d:1", False), ("a:1", False)]


def test_members_that_name_each_other_make_no_busy_loop() -> None:
    made = attempts(READ, deadline=1000.0)
    waits = []
    for count in range(30):
        leader = "a:1" if count % 2 else "b:1"
        waits.append(made.failed(stated("NOT_LEADER", leader=leader), 0.0))
    assert sum(waits) > 3
    assert max(waits) == 0.5


def test_a_hint_that_is_no_address_is_ignored() -> None:
    for leader in ("", "http://", "a b:1", "http://a:0", "http://a:99999"):
        made = attempts(READ)
        made.failed(stated("NOT_LEADER", leader=leader), 0.0)
        assert made.address == "b:1", leader


def test_nothing_that_answers_is_reported_soon() -> None:
    made, now = attempts(READ, deadline=1000.0), 0.0
    with pytest.raises(Unavailable) as raised:
        while True:
            now += made.failed(REFUSED, now) + 0.01
    assert SILENCE_MAX <= now < 2 * SILENCE_MAX
    assert raised.value.reason == "SCHEDULER_UNREACHABLE"
    for part in (*ALL, "Connection refused"):
        assert part in raised.value.message
    # As long as a member answers, an election is waited for.
    made, now = attempts(READ, deadline=10.0), 0.0
    with pytest.raises(Unavailable) as raised:
        while True:
            now += made.failed(FOLLOWER if made.address == "b:1" else REFUSED, now) + 0.01
    assert now > 9
    assert raised.value.reason == "NO_LEADER"


@pytest.mark.parametrize("wrong", range(3))
@pytest.mark.parametrize("first", ALL)
def test_a_server_of_another_kind_is_passed_over(wrong: int, first: str) -> None:
    made = attempts(READ, first=first)
    if made.address == ALL[wrong]:
        made.failed(OTHER_KIND, 0.0)
    assert made.address != ALL[wrong]
    # Where no server knows the method, that is the answer.
    error, count = end(KEYED, [OTHER_KIND])
    assert (error.code, count) == ("UNIMPLEMENTED", 3)


def test_a_conductor_is_called_again_only_where_that_may_help() -> None:
    call = Call(changes=True, request_id="id", at_conductor=True)
    later = {"NO_LEADER", "SCHEDULER_UNREACHABLE", "OUTCOME_UNKNOWN", "NOT_LEADER", "STOPPING"}
    for reason in (*later, "CONDUCTOR_BUSY", "AGENT_UNREACHABLE"):
        _, count = end(call, [stated(reason)])
        assert (count > 1) == (reason in later), reason
