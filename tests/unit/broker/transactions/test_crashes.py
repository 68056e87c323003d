"""The process, or the power, goes away at every moment of a transaction: what was answered holds,
and no decision counts twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.codes import RequestCode
from tests.support.broker import BrokerInMemory, ok
from tests.support.network import FakePeer
from tests.support.power import aftermaths
from tests.support.transactions import (
    COMMIT,
    GIVEN_UP,
    ROLLBACK,
    UNKNOWN,
    answer,
    begin,
    bodies,
    connect,
    end,
    end_request,
    let,
    questions,
)

#: What the producer has decided about each of its messages, at every question.
DECISIONS = {b"commit": COMMIT, b"rollback": ROLLBACK, b"later": UNKNOWN}


class Story:
    """A producer's work up to the moment when the broker is gone; what it was told."""

    def __init__(self, files: FaultyFiles, flush: str) -> None:
        self._broker = BrokerInMemory(files, flush_disk_type=flush)
        #: Half messages and decisions that were answered with success.
        self.sent: set[bytes] = set()
        self.decided: set[bytes] = set()

    def run(self) -> None:
        broker = self._broker
        peer = connect(broker)
        for body, decision in DECISIONS.items():
            sent = begin(broker, body)
            self.sent.add(body)
            if decision is not UNKNOWN:
                ok(end(broker, sent, decision))
                self.decided.add(body)
        let(broker, 8, 1)
        for asked in questions(peer):
            ok(answer(broker, asked, UNKNOWN))
        let(broker, 40, 1)

    def told(self) -> tuple[set[bytes], set[bytes]]:
        """What it was told by now: sent and decided."""
        return set(self.sent), set(self.decided)


def again(files: MemoryFiles, **settings: Any) -> BrokerInMemory:
    """The broker started again, some seconds after it was gone."""
    clock = MemoryReactorClock()
    clock.advance(60)
    return BrokerInMemory(files, clock=clock, **settings)


def afterwards(files: MemoryFiles, flush: str = "ASYNC_FLUSH") -> BrokerInMemory:
    """The broker started again and again, with a producer that answers all questions."""
    for _ in range(2):
        broker = again(files, flush_disk_type=flush)
        peer = connect(broker)
        answer_all(broker, peer)
        broker.stop()
    return again(files, flush_disk_type=flush)


def answer_all(broker: BrokerInMemory, peer: FakePeer) -> None:
    """Each question is answered, with what the message's body stands for, later ones twice."""
    answered = 0
    for _ in range(5):
        let(broker, 10, 5)
        asked = questions(peer)
        for question in asked[answered:]:
            body = (question.msg_id or "").removeprefix("ID-").encode()
            decision = DECISIONS.get(body, COMMIT) or COMMIT
            ok(answer(broker, question, decision))
            ok(answer(broker, question, decision))
        answered = len(asked)


@pytest.mark.parametrize("how", ["killed", "without power"])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_it_ends_at_every_moment(flush: str, how: str) -> None:
    disk, killed = FaultyFiles(MemoryFiles()), how == "killed"
    story = Story(disk, flush)
    ends = aftermaths(disk, story.run, seeds=[1], kills=killed, losses=not killed, note=story.told)
    moment = 0
    for moment, files, (sent, decided) in ends:
        seen = bodies(afterwards(files, flush))
        assert set(seen.values()) <= {1}, f"twice at {moment}: {seen}"
        assert not seen[b"rollback"] or b"rollback" not in decided
        # Nobody promised that what is in memory only outlives a loss of power.
        if killed or flush == "SYNC_FLUSH":
            assert sent - {b"rollback"} <= set(seen), f"lost at {moment}: {seen}"
    assert moment > 8


class LastWrite(Fault):
    """A torn write of the log, after which nothing reaches the disk any more."""

    def __init__(self, disk: FaultyFiles, kept: int) -> None:
        super().__init__("pwrite", "commitlog", kept=kept)
        self._disk = disk

    def strikes(self, operation: str, path: str) -> bool:
        if not super().strikes(operation, path):
            return False
        self._disk.lose_power_at = 0
        return True


def kill_while(
    prepare: Callable[[BrokerInMemory], object],
    last: Callable[[BrokerInMemory], object],
    kept: int,
    **settings: int,
) -> MemoryFiles:
    """The process dies while it writes what `last` has it write to the log, of which `kept` bytes
    are written; its files."""
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    broker = BrokerInMemory(disk, broker=dict(settings))
    prepare(broker)
    disk.faults.append(LastWrite(disk, kept))
    with suppress(AssertionError, OSError, PowerLoss):
        last(broker)
    return memory.kill()


def each_tear(
    prepare: Callable[[BrokerInMemory], object],
    last: Callable[[BrokerInMemory], object],
    check: Callable[[MemoryFiles, int], object],
    **settings: int,
) -> None:
    """Tears the last write in front of each record and in its head, and checks what is left each
    time. (A record whose head and body are whole counts as one, whatever its properties are.)"""
    whole = MemoryFiles()
    broker = BrokerInMemory(whole, broker=dict(settings))
    prepare(broker)
    before = broker.store.end_offset
    last(broker)
    starts = [head.physical_offset - before for head in broker.store.records(before)]
    assert len(starts) > 1, "a message and its op"
    for start in starts:
        for kept in (start, start + 50):
            check(kill_while(prepare, last, kept, **settings), kept)
    check(kill_while(prepare, last, broker.store.end_offset - before, **settings), -1)


class TestBetweenAMessageAndItsOp:
    def test_commit(self) -> None:
        def last(broker: BrokerInMemory) -> None:
            end(broker, {"queueOffset": "0", "msgId": f"{0:016X}"})

        def check(files: MemoryFiles, kept: int) -> None:
            assert bodies(afterwards(files)) == {b"commit": 1}, kept

        each_tear(lambda broker: begin(broker, b"commit"), last, check)

    def test_commits_of_one_turn(self) -> None:
        def prepare(broker: BrokerInMemory) -> None:
            self.sent = [begin(broker, b"%d" % n) for n in range(5)]

        def last(broker: BrokerInMemory) -> None:
            for each in self.sent:
                broker.handlers[RequestCode.END_TRANSACTION](end_request(each), broker.peer)
            broker.clock.advance(0)

        def check(files: MemoryFiles, kept: int) -> None:
            seen = bodies(afterwards(files))
            assert seen == {b"%d" % n: 1 for n in range(5)}, kept

        each_tear(prepare, last, check)
        each_tear(prepare, last, check, transaction_op_msg_max_size=2)

    def test_a_message_with_a_delay(self) -> None:
        def last(broker: BrokerInMemory) -> None:
            end(broker, {"queueOffset": "0", "msgId": f"{0:016X}"})

        def check(files: MemoryFiles, kept: int) -> None:
            assert bodies(afterwards(files)) == {b"commit": 1}, kept

        each_tear(lambda broker: begin(broker, b"commit", DELAY="1"), last, check)

    def test_put_back(self) -> None:
        def prepare(broker: BrokerInMemory) -> None:
            connect(broker)
            begin(broker, b"commit")

        def last(broker: BrokerInMemory) -> None:
            let(broker, 6.5, 0.5)

        def check(files: MemoryFiles, kept: int) -> None:
            broker = again(files)
            peer = connect(broker)
            let(broker, 8)
            assert len(questions(peer)) == 1, f"asked as often as it waits: {kept}"
            answer_all(broker, peer)
            broker.stop()
            assert bodies(afterwards(files)) == {b"commit": 1}, kept

        each_tear(prepare, last, check)

    def test_given_up(self) -> None:
        def prepare(broker: BrokerInMemory) -> None:
            begin(broker, b"commit")
            let(broker, 30, 0.5)

        def last(broker: BrokerInMemory) -> None:
            let(broker, 8, 0.5)

        def check(files: MemoryFiles, kept: int) -> None:
            broker = again(files, broker={"transaction_check_max": 1})
            let(broker, 100, 1)
            assert bodies(broker, GIVEN_UP) == {b"commit": 1}, kept

        each_tear(prepare, last, check, transaction_check_max=1)
