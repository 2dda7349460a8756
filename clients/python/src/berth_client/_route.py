"""Where the attempts of a call go, what each answer means, and when the call is given up.

It does no I/O and reads no clock: both halves of the client, with and without `asyncio`, drive it.

Invariant: a call is repeated only where a repetition does no harm. A read may be repeated; a change
carries one request id in all of its attempts, or is repeated only while no attempt can have been
carried out. A change that is given up while one may have been ends with `OutcomeUnknown`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from berth_client._settings import address
from berth_client._status import Failure
from berth_client.errors import OUTCOME_UNKNOWN, UNKNOWN, BerthError, Refusal, error_of

SILENCE_MAX = 2.0
"""How long a call goes on while no server has answered at all, in seconds."""
_WAIT_MIN = 0.05
_WAIT_MAX = 0.5
# With the waits in between it is the deadline that ends a call.
_ATTEMPTS_MAX = 10_000
# What a conductor states that could not reach the schedulers, or ends: another attempt may succeed.
_CONDUCTOR_LATER = frozenset(
    {"NO_LEADER", "SCHEDULER_UNREACHABLE", OUTCOME_UNKNOWN, "NOT_LEADER", "STOPPING"}
)


@dataclass(frozen=True, slots=True)
class Call:
    """What is attempted."""

    changes: bool
    """Whether it may change something."""
    request_id: str | None
    """The id that all attempts have. Absent: a repetition would be carried out again."""
    at_conductor: bool
    """Whether conductors serve it, and not schedulers."""
    needs: int = 0
    """The service version that a conductor needs for it."""

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be repeated although an attempt may have been carried out."""
        return not self.changes or self.request_id is not None


@dataclass(slots=True)
class Attempts:
    """The attempts of one call."""

    call: Call
    endpoints: Callable[[], list[str]]
    """All addresses, in the order in which they are tried."""
    address: str
    """Where the next attempt goes."""
    started: float
    deadline: float
    in_doubt: bool = False
    """Whether an attempt may have been carried out."""
    _hops: int = 0
    _count: int = 0
    _wait: float = _WAIT_MIN
    _silent: set[str] = field(default_factory=set)
    _others: set[str] = field(default_factory=set)
    _has_answer: bool = False
    _last: Failure | None = None

    def failed(self, failure: Failure, now: float) -> float:
        """Takes the failure of an attempt, and returns the seconds to wait before the next.

        Raises the error of the call where there is no next one.
        """
        self._count += 1
        self._last = failure
        if self.call.changes:
            self.in_doubt |= _is_in_doubt(failure)
        hint = self._follow(failure)
        if self.in_doubt and not self.call.is_repeatable:
            raise self._unknown(failure.stated())
        if self._is_silent() and now - self.started >= SILENCE_MAX:
            raise self.given_up()
        wait = self._move(hint)
        if now + wait >= self.deadline or self._count >= _ATTEMPTS_MAX:
            raise self.given_up()
        return wait

    def given_up(self, error: BerthError | None = None) -> BerthError:
        """Returns the error of a call that is given up, because of another one if there is one."""
        refusal = error.refusal if error else self._exhausted()
        if self.in_doubt:
            return self._unknown(refusal)
        return error or error_of(refusal, self.call.request_id)

    def _follow(self, failure: Failure) -> str | None:
        """Returns the leader that is named, if one is. Raises what is an answer."""
        if failure.is_unanswered:
            self._silent.add(self.address)
            return None
        if failure.is_of_other_kind or failure.reason == "OTHER_CLUSTER":
            self._others.add(self.address)
            may_know = set(self.endpoints()) - self._others - self._silent
            if not self._has_answer and not may_know:
                raise self._answered(failure)
            return None
        if failure.refusal is None or not self._is_later(failure):
            raise self._answered(failure)
        self._has_answer = True
        leader = failure.refusal.metadata.get("leader", "")
        if failure.reason != "NOT_LEADER" or not leader or self.call.at_conductor:
            return None
        try:
            return address(leader)
        except ValueError:
            return None

    def _is_later(self, failure: Failure) -> bool:
        if failure.code != "UNAVAILABLE":
            return False
        return not self.call.at_conductor or failure.reason in _CONDUCTOR_LATER

    def _answered(self, failure: Failure) -> BerthError:
        stated = failure.stated()
        if failure.refusal or failure.is_of_other_kind:
            # A refusal before the decision says nothing about an earlier attempt.
            if failure.is_decided or not self.in_doubt:
                return error_of(stated, self.call.request_id)
        # What is not Berth's answer says nothing about the request.
        return self._unknown(stated) if self.call.changes else error_of(stated)

    def _is_silent(self) -> bool:
        return not self._has_answer and set(self.endpoints()) <= self._silent

    def _move(self, hint: str | None) -> float:
        """Goes on to the next address, and returns how long to wait before."""
        endpoints = self.endpoints() or [self.address]
        before = self.address
        if hint is not None:
            self.address = hint
        elif before in endpoints:
            self.address = endpoints[(endpoints.index(before) + 1) % len(endpoints)]
        else:
            self.address = endpoints[0]
        self._hops += 1
        # Hints are followed at once, but two members that name each other make no busy loop.
        if self._hops < max(len(endpoints), 2) and self.address != before:
            return 0.0
        self._hops = 0
        wait = self._wait
        self._wait = min(wait * 2, _WAIT_MAX)
        return wait

    def _exhausted(self) -> Refusal:
        kind = "conductor" if self.call.at_conductor else "scheduler"
        at = ", ".join(self.endpoints())
        seen = self._last.message if self._last else "no answer in time"
        if self._is_silent() or (self.call.at_conductor and not self._has_answer):
            reason = f"{kind.upper()}_UNREACHABLE"
            return Refusal("UNAVAILABLE", reason, f"no {kind} answers at {at}: {seen}")
        stated = self._last.refusal if self._last else None
        hint = stated.hint if stated else None
        return Refusal(
            "UNAVAILABLE", "NO_LEADER", f"no {kind} of {at} took the call: {seen}", hint
        )

    def _unknown(self, refusal: Refusal) -> BerthError:
        if refusal.reason in UNKNOWN:
            return error_of(refusal, self.call.request_id)
        text = f"{refusal.message}; the request may or may not be carried out"
        hint = refusal.hint
        if self.call.request_id is not None:
            hint = (
                f"repeat it with request_id={self.call.request_id!r}: "
                "it is carried out once, however often it is repeated"
            )
        unknown = Refusal("UNAVAILABLE", OUTCOME_UNKNOWN, text, hint, refusal.metadata)
        return error_of(unknown, self.call.request_id)


def _is_in_doubt(failure: Failure) -> bool:
    if failure.refusal:
        return failure.refusal.reason == OUTCOME_UNKNOWN
    return not (failure.is_unsent or failure.is_of_other_kind)
