"""A decision that comes while the one before is on its way: no answer tells of what may be lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import ResumeCheckHalfMessageRequestHeader
from tests.support.broker import BrokerInMemory, Threads, ok
from tests.support.network import FakePeer
from tests.support.told_replicas import TOLD_AS_SAFE, ToldReplicas, answer_by
from tests.support.transactions import (
    COMMIT,
    GIVEN_UP,
    HALF,
    ROLLBACK,
    answer,
    begin,
    bodies,
    connect,
    end,
    end_request,
    let,
    questions,
)

FLUSHES = ["ASYNC_FLUSH", "SYNC_FLUSH"]
PAIRS = [(one, other) for one in (COMMIT, ROLLBACK) for other in (COMMIT, ROLLBACK)]


class Decision:
    """A request 37 that is sent without waiting for its answer."""

    def __init__(self, broker: BrokerInMemory, sent: dict[str, str], decision: int) -> None:
        self.decision = decision
        self.code: int | None = None
        self.remark: str | None = None
        peer = FakePeer()
        peer.reply = self._answered  # type: ignore[method-assign]
        try:
            result = broker.handlers[RequestCode.END_TRANSACTION](end_request(sent, decision), peer)
        except RequestError as error:
            self._answered(error)
            return
        if isinstance(result, Deferred):
            result.addCallbacks(self._answered, self._failed)

    def _answered(self, answer: Any) -> None:
        assert self.code is None, "answered once"
        self.code, self.remark = answer.code, answer.remark

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        self._answered(error if isinstance(error, RequestError) else RequestError(1, str(error)))


def told(decisions: list[Decision]) -> int | None:
    """What the answers say that was decided, None where they say nothing."""
    for each in decisions:
        if each.code == ResponseCode.SUCCESS:
            return each.decision
        if each.code == ResponseCode.ILLEGAL_OPERATION:
            return ROLLBACK if each.decision == COMMIT else COMMIT
    return None


def holds(files: MemoryFiles, flush: str, decided: int | None) -> None:
    """What was told is so, whatever the producer says when it is asked again."""
    if decided is None:
        return
    broker = BrokerInMemory(files, flush_disk_type=flush)
    peer = connect(broker)
    let(broker, 20, 0.5)
    for asked in questions(peer):
        answer(broker, asked, ROLLBACK if decided == COMMIT else COMMIT)
    let(broker, 20, 0.5)
    assert bodies(broker) == ({b"x": 1} if decided == COMMIT else {})


@pytest.mark.parametrize("later", [False, True], ids=["one turn", "two turns"])
@pytest.mark.parametrize("pair", PAIRS)
def test_the_power_goes_before_a_sync(pair: tuple[int, int], later: bool) -> None:
    threads = Threads()
    broker = BrokerInMemory(threads=threads, flush_disk_type="SYNC_FLUSH")
    sent = begin(broker)
    let(broker, 2)
    threads.eager = False
    decisions = [Decision(broker, sent, pair[0])]
    if later:
        broker.clock.advance(0)
        # The book forgets, each second, what it need not know.
        broker.clock.advance(1.5)
    decisions.append(Decision(broker, sent, pair[1]))
    broker.clock.advance(0)
    assert told(decisions) is None
    for _ in range(5):
        threads.run()
        broker.clock.advance(0)
    expected = ResponseCode.SUCCESS if pair[0] == pair[1] else ResponseCode.ILLEGAL_OPERATION
    assert [each.code for each in decisions] == [ResponseCode.SUCCESS, expected]
    assert isinstance(broker.files, MemoryFiles)
    holds(broker.files.crash(), "SYNC_FLUSH", pair[0])


@pytest.mark.parametrize("flush", FLUSHES)
@pytest.mark.parametrize("pair", PAIRS)
def test_gone_at_every_moment(pair: tuple[int, int], flush: str) -> None:
    moment, told_at = 1, 0
    while True:
        memory = MemoryFiles()
        files = FaultyFiles(memory)
        broker = BrokerInMemory(files, flush_disk_type=flush)
        sent = begin(broker)
        let(broker, 2)
        files.changes, files.lose_power_at = 0, moment
        decisions: list[Decision] = []
        try:
            decisions += [Decision(broker, sent, decision) for decision in pair]
            let(broker, 3)
        except (PowerLoss, AssertionError):
            pass
        decided = told(decisions)
        told_at += decided is not None
        holds(memory.kill(), flush, decided)
        if flush == "SYNC_FLUSH":
            holds(memory.crash(), flush, decided)
            holds(memory.crash(moment), flush, decided)
        if files.changes < moment:
            break
        moment += 1
    assert moment > 2
    assert told_at


@pytest.mark.parametrize("pair", PAIRS)
def test_the_first_cannot_be_written(pair: tuple[int, int]) -> None:
    files = FaultyFiles(MemoryFiles())
    broker = BrokerInMemory(files)
    sent = begin(broker)
    let(broker, 2)
    files.faults.append(Fault("pwrite", "commitlog"))
    decisions = [Decision(broker, sent, decision) for decision in pair]
    broker.clock.advance(0)
    assert told(decisions) is None
    if pair[0] == COMMIT:
        assert [each.code for each in decisions] == [ResponseCode.SYSTEM_ERROR] * 2


@pytest.mark.parametrize(
    "code",
    [ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR, ResponseCode.FLUSH_SLAVE_TIMEOUT],
)
@pytest.mark.parametrize("pair", PAIRS)
def test_replicas(pair: tuple[int, int], code: ResponseCode) -> None:
    broker = BrokerInMemory()
    sent = begin(broker)
    let(broker, 2)
    broker.commit.replicator = replicas = ToldReplicas()
    decisions = [Decision(broker, sent, pair[0])]
    broker.clock.advance(0)
    broker.clock.advance(1.5)
    decisions.append(Decision(broker, sent, pair[1]))
    broker.clock.advance(0)
    assert [each.code for each in decisions] == [None, None]
    replicas.say(code)
    broker.clock.advance(0)
    assert told(decisions) == (pair[0] if code is ResponseCode.SUCCESS else None)
    assert all(each.code is not None for each in decisions)
    # One that comes when too few replicas are left is not told of it either.
    replicas.why_not = "too few"
    assert told([Decision(broker, sent, pair[0])]) is None


@pytest.mark.parametrize(("code", "told"), TOLD_AS_SAFE)
def test_what_is_put_back_is_safe_when_it_is_told(code: ResponseCode, told: ResponseCode) -> None:
    broker = BrokerInMemory(broker={"transaction_check_max": 1})
    connect(broker)
    begin(broker)
    let(broker, 6 + 2 * 30)
    (message,) = broker.consume(GIVEN_UP)
    message_id = offset_message_id("127.0.0.1", 10911, message.physical_offset)
    header = ResumeCheckHalfMessageRequestHeader(topic="Topic", msg_id=message_id)

    def request() -> RemotingCommand:
        return RemotingCommand.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)

    assert answer_by(broker, request(), code).code == told
    again = broker.request(request())
    assert again is not None and again.code == ResponseCode.SUCCESS, "asked for again, it is one"
    assert again.remark == "it waits already"


@pytest.mark.parametrize("pair", PAIRS)
def test_after_a_restart_replicas_may_lack_it(pair: tuple[int, int]) -> None:
    former = BrokerInMemory()
    sent = begin(former)
    let(former, 2)
    ok(end(former, sent, pair[0]))
    assert isinstance(former.files, MemoryFiles)
    broker = BrokerInMemory(former.files.kill(), clock=former.clock)
    let(broker, 2)
    broker.commit.replicator = replicas = ToldReplicas()
    again = Decision(broker, sent, pair[1])
    let(broker, 1)
    assert again.code is None
    replicas.say(ResponseCode.SUCCESS)
    let(broker, 1)
    assert told([again]) == pair[0]


def test_a_former_master_tells_nothing() -> None:
    broker = BrokerInMemory()
    sent = begin(broker)
    let(broker, 2)
    ok(end(broker, sent))
    let(broker, 2)
    broker.commit.replicator = replicas = ToldReplicas()
    again = Decision(broker, sent, COMMIT)
    broker.commit.replicator = None
    broker.become(RoleState(Role.ISOLATED, 0))
    broker.become(RoleState(Role.MASTER, 0))
    replicas.say(ResponseCode.SUCCESS)
    assert again.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert ok(end(broker, sent)) is not None
    assert bodies(broker) == {b"x": 1}


def role_ends(broker: BrokerInMemory) -> None:
    broker.become(RoleState(Role.ISOLATED, 0))


def stops(broker: BrokerInMemory) -> None:
    broker.stop()


@pytest.mark.parametrize("ends", [role_ends, stops])
@pytest.mark.parametrize("pair", PAIRS)
def test_the_role_ends_meanwhile(
    pair: tuple[int, int], ends: Callable[[BrokerInMemory], None]
) -> None:
    broker = BrokerInMemory(flush_disk_type="SYNC_FLUSH")
    sent = begin(broker)
    let(broker, 2)
    decisions = [Decision(broker, sent, decision) for decision in pair]
    ends(broker)
    assert all(each.code is not None for each in decisions)
    assert isinstance(broker.files, MemoryFiles)
    holds(broker.files.crash(), "SYNC_FLUSH", told(decisions))


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_an_unwritten_decision_about_a_copy(decision: int) -> None:
    threads = Threads()
    broker = BrokerInMemory(threads=threads, flush_disk_type="SYNC_FLUSH")
    peer = connect(broker)
    sent = begin(broker)
    let(broker, 9, 0.5)
    assert questions(peer), "a copy stands for it"
    assert len(bodies(broker, HALF)) == 1
    threads.eager = False
    decisions = [Decision(broker, sent, each) for each in (decision, COMMIT, ROLLBACK)]
    broker.clock.advance(0)
    assert told(decisions) is None
    for _ in range(5):
        threads.run()
        broker.clock.advance(0)
    assert told(decisions) == decision
    assert all(each.code is not None for each in decisions)
