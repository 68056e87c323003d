"""The controller's decisions, one after the other: each looks at a state that has the events of all
earlier ones about its group. It is the state of the machine that the Raft group feeds."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from twisted.internet.defer import (
    CancelledError,
    Deferred,
    FirstError,
    TimeoutError,
    gatherResults,
)
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.controller.core.decisions import Decision
from rocketmq_tw.controller.core.election import BrokerLife
from rocketmq_tw.controller.core.events import EventError, decode_event, encode_event
from rocketmq_tw.controller.core.requests import Decide
from rocketmq_tw.controller.core.state import ControllerState
from rocketmq_tw.controller.counts import ControllerCounts, Status
from rocketmq_tw.net.host_shares import HostShares
from rocketmq_tw.raft.core.codes import Code, RaftRole, Refused
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.raft.node import RaftNode
from rocketmq_tw.raft.state_machine import IStateMachine, SnapshotError
from rocketmq_tw.runtime.fairness import FairSerialQueue
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Seconds that a request waits for its decision, as in stock.
DECISION_TIMEOUT = 5.0
#: Decisions that wait for their turn, and as many reads that wait for a majority; and so many of
#: them that one host may have.
MAX_WAITING, MAX_OF_A_HOST = 1024, 512
#: The asker of a decision that the controller makes by itself: it finds room however many wait.
ITSELF = ""

_CODES = {
    Code.NOT_LEADER: ResponseCode.CONTROLLER_NOT_LEADER,
    Code.LEADER_PENDING_FULL: ResponseCode.SYSTEM_BUSY,
    Code.LEADER_TRANSFERRING: ResponseCode.SYSTEM_BUSY,
}

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ControllerState).decode


@implementer(IStateMachine)
class ControllerMachine:
    """Applies events to `state`; what is no event changes nothing, here and in stock's. A snapshot
    is the state as JSON (docs/formats/controller.md)."""

    log = Logger()

    def __init__(self) -> None:
        self.state = ControllerState()

    def apply(self, entry: Entry) -> None:
        if not entry.body:
            return
        try:
            event = decode_event(entry.body)
        except EventError as error:
            self.log.warn(
                "entry {index} of the log is passed over: {reason}",
                index=entry.index,
                reason=error,
            )
            return
        self.log.debug("entry {index}: {event}", index=entry.index, event=event)
        self.state.apply(event)

    def take_snapshot(self) -> bytes:
        return _encode(self.state)

    def check_snapshot(self, data: bytes) -> None:
        _state_of(data)

    def load_snapshot(self, data: bytes) -> None:
        self.state = _state_of(data)


def _state_of(data: bytes) -> ControllerState:
    try:
        return _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SnapshotError(str(error)) from error


class _Waiting:
    """Counts the requests that wait for `what`, of each host."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._of_host = HostShares()
        self._count = 0

    def enter(self, host: str) -> Callable[[T], T]:
        """Counts a request until what is returned is called; raises `RequestError` where there are
        too many."""
        is_full = self._count >= MAX_WAITING or self._of_host.of(host) >= MAX_OF_A_HOST
        if is_full and host != ITSELF:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"too many requests wait for {self._what}: send it again later",
            )
        self._count += 1
        self._of_host.add(host)

        def leave(result: T) -> T:
            self._count -= 1
            self._of_host.remove(host)
            return result

        return leave


class Decider:
    """Decides where this member leads and has applied all that its predecessors left.

    Every method raises `RequestError`, or its Deferred fails with one: CONTROLLER_NOT_LEADER where
    another one is to be asked, SYSTEM_ERROR where the outcome is open.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        node: RaftNode,
        machine: ControllerMachine,
        life: BrokerLife,
        config: ControllerConfig,
        counts: ControllerCounts,
    ) -> None:
        self.machine = machine
        self._counts = counts
        self._clock = clock
        self._node = node
        self._life = life
        self._config = config
        self._of_group = FairSerialQueue[str, str]()
        #: Up to this index the log may have entries whose decision has timed out or failed.
        self._doubtful_end = -1
        self._waiting, self._reading = _Waiting("a decision"), _Waiting("an answer")
        self._ready_term: int | None = None
        node.role_listeners.append(self._role_changed)

    @property
    def leads(self) -> bool:
        """Whether decisions are made here now."""
        return self._node.is_leader and self._ready_term == self._node.core.term

    def decide(self, name: str, make: Decide, host: str = ITSELF) -> "Deferred[Decision]":
        """Fires with the decision on the group of this name, which `host` asks for, once its events
        are applied; one without events once it is certain that no other leader could have decided
        meanwhile. Those on one group are made in turn for all hosts that ask, and do not wait for
        those on others: no event of one group touches another."""
        self._check_leads()
        leave = self._waiting.enter(host)
        return self._within_time(self._in_turn(name, make, host)).addBoth(leave)

    def elect(self, name: str, make: Decide, host: str = ITSELF) -> "Deferred[Decision]":
        """Decides as `decide` does, and counts the election."""
        return self.decide(name, make, host).addCallback(self._elected, name)

    def _elected(self, decision: Decision, name: str) -> Decision:
        group = self.machine.state.group(name)
        if group is not None:
            self._counts.election(group.cluster, name, decision.code)
        return decision

    def read(self, make: Decide, host: str = ITSELF) -> "Deferred[Decision]":
        """Fires with the decision on a request of `host` that only looks: it sees all that was
        answered before it came."""
        self._check_leads()
        leave = self._reading.enter(host)
        reading = Deferred.fromCoroutine(self._read(make))
        return self._within_time(reading).addBoth(leave)

    def _check_leads(self) -> None:
        if not self.leads:
            leader = self._node.leader_id
            known = "no leader is known" if leader is None else f"{leader} leads the controllers"
            raise RequestError(ResponseCode.CONTROLLER_NOT_LEADER, f"not the leader: {known}")

    def _in_turn(self, name: str, make: Decide, host: str) -> "Deferred[Decision]":
        return self._of_group.run(name, host, lambda: Deferred.fromCoroutine(self._decide(make)))

    async def _decide(self, make: Decide) -> Decision:
        core = self._node.core
        if core.applied_index < self._doubtful_end:
            await self._append_empty()
        self._check_leads()
        decision = make(self.machine.state, self._life)
        if not decision.events:
            await self._confirm()
            return decision
        try:
            await self._append([encode_event(event) for event in decision.events])
        except BaseException:
            self._doubtful_end = core.log.end_index
            raise
        self.log.info("decided: {events}", events=", ".join(map(str, decision.events)))
        return decision

    async def _read(self, make: Decide) -> Decision:
        await self._confirm()
        return make(self.machine.state, self._life)

    async def _confirm(self) -> None:
        """Returns once the state has all that any leader had answered before the call."""
        if self._config.reads_write:
            await self._append_empty()
            return
        try:
            await self._node.read()
        except Refused as error:
            raise _nothing_done(error) from error

    async def _append_empty(self) -> None:
        try:
            await self._append([b""])
        except Refused as error:
            raise _nothing_done(error) from error

    async def _append(self, bodies: Sequence[bytes]) -> None:
        """Returns once all are applied; raises `Refused`."""
        began, status = self._clock.seconds(), Status.FAILED
        try:
            await gatherResults(self._node.propose(bodies), consumeErrors=True)
            status = Status.SUCCESS
        except FirstError as error:
            if ran_out_of_time(error.subFailure.value):
                status = Status.TIMEOUT
            error.subFailure.raiseException()
        finally:
            self._counts.append(status, self._clock.seconds() - began)

    def _within_time(self, deciding: "Deferred[Decision]") -> "Deferred[Decision]":
        deciding.addTimeout(DECISION_TIMEOUT, self._clock)
        return deciding.addErrback(self._refused)

    def _refused(self, failure: Failure) -> Decision:
        error = failure.value
        if isinstance(error, Refused):
            code = _CODES.get(error.code, ResponseCode.SYSTEM_ERROR)
            raise RequestError(code, str(error)) from error
        if isinstance(error, TimeoutError | CancelledError):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"no decision within {DECISION_TIMEOUT:g} s: send it again",
            ) from error
        failure.raiseException()

    def _role_changed(self, role: RaftRole, term: int) -> None:
        self._ready_term = None
        if role is RaftRole.LEADER:
            Deferred.fromCoroutine(self._prepare(term)).addErrback(self._not_prepared)

    async def _prepare(self, term: int) -> None:
        """A new leader's state may be an old one, so it decides nothing before this is done."""
        await self._node.read()
        self._ready_term = term
        self.log.info("this controller leads and decides in term {term} from now on", term=term)

    def _not_prepared(self, failure: Failure) -> None:
        if failure.check(Refused) is None:
            self.log.failure("this controller cannot decide", failure)


def ran_out_of_time(error: BaseException | None) -> bool:
    """Returns whether a decision failed since it, or what it appended, took too long."""
    if isinstance(error, Refused):
        return error.code is Code.WAIT_QUORUM_ACK_TIMEOUT
    return isinstance(error, TimeoutError | CancelledError)


def is_open(error: RequestError) -> bool:
    """Returns whether a decision that failed with `error` may be made yet."""
    is_of_decision = isinstance(error.__cause__, Refused | TimeoutError | CancelledError)
    return is_of_decision and error.code == ResponseCode.SYSTEM_ERROR


def _nothing_done(error: Refused) -> Refused:
    """Makes a lost term a refusal for not leading: nothing was decided, so the new leader can be
    asked."""
    lost = error.code is Code.TERM_CHANGED
    return Refused(Code.NOT_LEADER, error.remark) if lost else error
