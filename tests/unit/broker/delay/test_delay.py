"""Delay levels: each message at its time, once; and what a restart or a crash leaves."""

from __future__ import annotations

import errno
import random

import pytest
from twisted.logger import formatEvent, globalLogPublisher

from rocketmq_tw.broker.assembly.host import ConfigFile
from rocketmq_tw.broker.delay.levels import DelayLevels, due_message
from rocketmq_tw.broker.delay.part import Delay
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.sink import LocalLog, SinkOfRole
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from tests.support.broker import BrokerInMemory, Threads, fired, messages_of, ok
from tests.support.stores import START_MS, make_message

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
DELAY_FILE = "/store/config/delayOffset.json"


def test_levels() -> None:
    levels = DelayLevels("1s 5m 2h 1d")
    assert levels.max_level == 4
    assert [levels.delay_ms(n) for n in (1, 2, 3, 4)] == [1000, 300_000, 7_200_000, 86_400_000]


@pytest.mark.parametrize("text", ["", "1", "s", "1w", "-1s"])
def test_levels_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="durations with"):
        DelayLevels(text)


def test_a_message_that_names_no_topic_is_never_due() -> None:
    assert due_message(make_message(properties=b"REAL_TOPIC\x01T\x02")) is None
    assert due_message(make_message(properties=b"REAL_TOPIC\x01T\x02REAL_QID\x01-1\x02")) is None


def arrivals(plane: BrokerInMemory, seconds: float, step: float = 0.01) -> list[tuple[bytes, int]]:
    """Lets time pass; the messages that came, and the milliseconds at which they did."""
    for _ in range(round(seconds / step)):
        plane.clock.advance(step)
    return [(m.body, m.store_timestamp - START_MS) for m in plane.consume()]


class TestDelivery:
    def test_at_its_time_and_once(self) -> None:
        plane = BrokerInMemory()
        ok(plane.send(b"five", properties={"DELAY": "2"}))
        ok(plane.send(b"one", properties={"DELAY": "1", "TAGS": "a"}))
        came = arrivals(plane, 10)
        assert [body for body, _ in came] == [b"one", b"five"]
        for (_, at), due in zip(came, (1000, 5000), strict=True):
            assert due <= at <= due + 20

    def test_what_consumers_see(self) -> None:
        plane = BrokerInMemory()
        ok(plane.send(b"x", queue_id=3, properties={"DELAY": "1", "TAGS": "a", "UNIQ_KEY": "U"}))
        plane.clock.pump([0.5] * 4)
        (message,) = plane.consume(queue_id=3)
        assert (message.tags, message.message_id) == ("a", "U")
        assert message.properties["DELAY"] == "1", "as stock leaves it"
        assert message.born_host == ("127.0.0.1", 50000)

    def test_idle_levels_have_no_timer(self) -> None:
        broker = BrokerInMemory()
        broker.clock.advance(0)
        others = set(broker.clock.getDelayedCalls())
        assert not any(level.alarm.is_set for level in broker.delivery._levels.values())
        ok(broker.send(properties={"DELAY": "3"}))
        (level,) = set(broker.clock.getDelayedCalls()) - others
        assert level.getTime() == 10, "exactly when it is due"

    def test_many_of_one_level_in_their_order(self) -> None:
        plane = BrokerInMemory()
        for n in range(100):
            plane.handlers[310](
                plane.send_request(b"%d" % n, properties={"DELAY": "1"}), plane.peer
            )
            if n % 10 == 0:
                plane.clock.advance(0.05)
        came = arrivals(plane, 2)
        assert [body for body, _ in came] == [b"%d" % n for n in range(100)]

    def test_messages_that_come_while_others_wait(self) -> None:
        plane = BrokerInMemory()
        chance = random.Random(7)
        sent = []
        for n in range(50):
            ok(plane.send(b"%d" % n, properties={"DELAY": str(chance.choice((1, 2)))}))
            sent.append(b"%d" % n)
            plane.clock.advance(chance.random() / 5)
        came = arrivals(plane, 8)
        assert sorted(body for body, _ in came) == sorted(sent)

    def test_a_clock_set_back_delivers_now(self) -> None:
        broker = BrokerInMemory()
        ok(broker.send(properties={"DELAY": "1"}))
        broker.stop()
        again = BrokerInMemory(broker.files, clock=broker.clock, started=False)
        again.shift_ms = -10_000_000
        again.start()
        again.clock.pump([0, 0])
        assert len(again.consume()) == 1

    def test_one_that_names_no_topic_does_not_stop_the_others(self) -> None:
        plane = BrokerInMemory()
        for _ in range(3):
            broken = make_message(topic=SCHEDULE, properties=b"DELAY\x011\x02")
            plane.commit.append(broken, lambda code, appended: None)
        ok(plane.send(b"good", properties={"DELAY": "1"}))
        assert [body for body, _ in arrivals(plane, 2)] == [b"good"]

    def test_a_limit_lowered_since_spares_what_was_accepted(self) -> None:
        broker = BrokerInMemory(max_message_size=1 << 18)
        ok(broker.send(b"x" * 100_000, properties={"DELAY": "1"}))
        ok(broker.send(b"small", properties={"DELAY": "1"}))
        broker.stop()

        restarted = BrokerInMemory(broker.files, clock=broker.clock, max_message_size=1000)
        bodies = [body for body, _ in arrivals(restarted, 2)]
        assert bodies == [b"x" * 100_000, b"small"]

    def test_one_that_can_never_be_stored_does_not_stop_the_others(self) -> None:
        plane = BrokerInMemory()
        for topic in ("../../etc", "t" * 300, "T\u00e9"):
            text = f"DELAY\x011\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02"
            broken = make_message(topic=SCHEDULE, properties=text.encode())
            plane.commit.append(broken, lambda code, appended: None)
        ok(plane.send(b"good", properties={"DELAY": "1"}))
        said: list[str] = []
        observer = lambda event: said.append(formatEvent(event))  # noqa: E731
        globalLogPublisher.addObserver(observer)
        try:
            assert [body for body, _ in arrivals(plane, 3)] == [b"good"]
        finally:
            globalLogPublisher.removeObserver(observer)
        (first, *others) = [line for line in said if "cannot be delivered" in line]
        assert "message 0 of delay level 1" in first and "../../etc" in first
        assert "at 0 of the log" in first and len(others) == 2, "each once"
        assert plane.delay_offsets.get(1) == 4
        waiting = plane.store.read_queue(SCHEDULE, 0, 0, 10, 1 << 20)
        assert len(messages_of(waiting.data)) == 4, "they can still be read there"

    def test_a_failed_write_is_tried_again(self) -> None:
        files = FaultyFiles(MemoryFiles())
        plane = BrokerInMemory(files)
        ok(plane.send(b"a", properties={"DELAY": "1"}))
        ok(plane.send(b"b", properties={"DELAY": "1"}))
        files.faults.append(Fault("pwrite", "commitlog", errno.ENOSPC, times=2))
        files.faults.append(Fault("pwritev", "commitlog", errno.ENOSPC, times=2))
        came = arrivals(plane, 6)
        assert [body for body, _ in came] == [b"a", b"b"]
        assert came[0][1] >= 2000

    def test_an_acting_master_delivers_through_the_sink_of_its_role(self) -> None:
        plane, other = BrokerInMemory(), BrokerInMemory()
        ok(plane.send(b"a", properties={"DELAY": "1"}))
        plane.become(RoleState(Role.SLAVE, 1))
        plane.clock.advance(2)
        assert plane.broker[Delay].work is None
        acting = RoleState(Role.ACTING_MASTER, 1)
        plane.broker.role.change(acting)
        plane.broker[Delay].ready(acting)
        plane.clock.pump([0.5] * 4)
        assert not other.consume() and plane.delay_offsets.get(1) == 0, "there is no sink yet"
        sink = plane.broker[Writing].sink
        assert isinstance(sink, SinkOfRole)
        sink.sinks[Role.ACTING_MASTER] = LocalLog(other.commit)
        for _ in range(4):
            plane.clock.advance(0.5)
            other.clock.advance(0.5)
        assert [message.body for message in other.consume()] == [b"a"]
        assert not plane.consume() and plane.delay_offsets.get(1) == 1

    def test_a_read_that_fails_is_tried_again(self) -> None:
        files = FaultyFiles(MemoryFiles())
        plane = BrokerInMemory(files)
        ok(plane.send(b"a", properties={"DELAY": "1"}))
        files.faults.append(Fault("pread", "commitlog", times=1))
        plane.clock.pump([1.0, 1.1])
        assert [message.body for message in plane.consume()] == [b"a"]


class TestRestart:
    def test_a_clean_stop_leaves_nothing_out_and_repeats_nothing(self) -> None:
        broker = BrokerInMemory()
        for n in range(6):
            ok(broker.send(b"%d" % n, properties={"DELAY": "1"}))
            broker.clock.advance(0.3)
        delivered = len(broker.consume())
        assert 0 < delivered < 6
        broker.stop()
        again = BrokerInMemory(broker.files, clock=broker.clock)
        assert [body for body, _ in arrivals(again, 3)] == [b"%d" % n for n in range(6)]

    def test_thousands_that_are_due_at_once_come_once_each(self) -> None:
        """Stopped while they wait, started again long after their time."""
        broker = BrokerInMemory()
        bodies = [b"%d" % n for n in range(5000)]
        for n, body in enumerate(bodies):
            ok(broker.send(body, properties={"DELAY": "5"}, queue_id=n % 4))
        assert not broker.consume()
        broker.stop()
        broker.clock.advance(3600)
        again = BrokerInMemory(broker.files, clock=broker.clock)
        for _ in range(200):
            again.clock.advance(0.05)
        for queue_id in range(4):
            came = [message.body for message in again.consume(queue_id=queue_id)]
            assert came == bodies[queue_id::4]
        for _ in range(50):
            again.clock.advance(10)
        assert sum(len(again.consume(queue_id=n)) for n in range(4)) == 5000

    def test_a_stop_in_the_middle_of_a_delivery(self) -> None:
        broker = BrokerInMemory()
        ok(broker.send(b"x", properties={"DELAY": "1"}))
        # Appended by the timer, written by the end of the turn that comes after the stop.
        level = broker.delivery._levels[0]
        assert level.alarm.is_set
        level.alarm.cancel()
        broker.clock.rightNow = 1.0
        broker.delivery._wake(level)
        assert len(broker.consume()) == 0
        role = broker.broker.role
        role.scope.end()
        stopped = broker.broker[Delay].leave(role.state)
        assert not stopped.called
        broker.clock.advance(0)
        fired(stopped)
        assert b"1:1" in broker.files.read(DELAY_FILE)
        broker.stop()
        again = BrokerInMemory(broker.files, clock=broker.clock)
        assert len(arrivals(again, 3)) == 1

    def test_a_kill_loses_nothing(self) -> None:
        files = MemoryFiles()
        broker = BrokerInMemory(files)
        for n in range(20):
            ok(broker.send(b"%d" % n, properties={"DELAY": "1"}))
            broker.clock.advance(0.7)
            assert files.exists(DELAY_FILE) == (broker.clock.seconds() >= 10), "every ten seconds"
        kept = b"1:%d}" % broker.delay_offsets.get(1)
        assert kept not in files.read(DELAY_FILE), "once until now"
        again = BrokerInMemory(files.crash(), clock=broker.clock)
        bodies = {body for body, _ in arrivals(again, 3)}
        # The last send may not be on the disk yet: it was promised to the page cache only.
        assert {b"%d" % n for n in range(19)} <= bodies

    def test_the_file_never_says_more_than_the_disk_has(self) -> None:
        threads = Threads(eager=False)
        broker = BrokerInMemory(threads=threads)
        broker.add_topic("Topic")
        threads.run()
        ok(broker.send(properties={"DELAY": "1"}))
        broker.clock.pump([0.5] * 21)
        assert len(broker.consume()) == 1
        assert not broker.files.exists(DELAY_FILE), "the log is not synced yet"
        for _ in range(2):
            threads.run()
            assert not broker.files.exists(DELAY_FILE)
        threads.run()
        assert b'"offsetTable":{1:1}' in broker.files.read(DELAY_FILE)

    def test_offsets_behind_a_shortened_queue_are_set_right(self) -> None:
        broker = BrokerInMemory()
        ok(broker.send(b"x", properties={"DELAY": "1"}))
        broker.stop()
        file = ConfigFile(broker.files, DELAY_FILE)
        file.write(b'{"offsetTable":{1:50},"dataVersion":{}}')
        again = BrokerInMemory(broker.files, clock=broker.clock)
        again.clock.pump([0, 0])
        ok(again.send(b"y", properties={"DELAY": "1"}))
        assert [body for body, _ in arrivals(again, 2)] == [b"y"]
