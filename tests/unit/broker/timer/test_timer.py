"""Messages for a time of their own, in the real broker on files in memory."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.metrics.instruments import Distribution
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.headers.topics import DeleteTopicRequestHeader
from tests.support.broker import BrokerInMemory
from tests.support.stores import START_MS
from tests.support.timers import bodies, delivered, let, timed


@pytest.fixture
def broker() -> BrokerInMemory:
    return BrokerInMemory()


class TestDelivery:
    @pytest.mark.parametrize("precision", [1000, 100])
    @pytest.mark.parametrize("delay", [1, 300, 999, 1000, 1001, 2345, 60_000])
    def test_a_delay_is_kept_to_the_millisecond(self, precision: int, delay: int) -> None:
        broker = BrokerInMemory(timer_precision_ms=precision)
        let(broker, 0.25)
        timed(broker, b"one", TIMER_DELAY_MS=delay)
        sent = broker.now_ms()
        let(broker, (delay + 1500) / 1000, 0.001 if delay < 3000 else 0.05)
        (one,) = delivered(broker)
        late = one.store_timestamp - sent - delay
        assert 0 <= late <= (3 if delay < 3000 else 60)

    def test_each_way_to_ask(self, broker: BrokerInMemory) -> None:
        timed(broker, b"sec", TIMER_DELAY_SEC=2)
        timed(broker, b"ms", TIMER_DELAY_MS=1500)
        timed(broker, b"at", TIMER_DELIVER_MS=START_MS + 1000)
        let(broker, 0.9)
        assert bodies(broker) == []
        let(broker, 2)
        assert bodies(broker) == [b"at", b"ms", b"sec"]

    def test_what_a_consumer_sees(self, broker: BrokerInMemory) -> None:
        answer = timed(broker, b"one", queue_id=2, TIMER_DELAY_SEC=2, UNIQ_KEY="u1", a="b")
        assert answer.ext_fields["queueId"] == "2"
        let(broker, 3)
        (one,) = delivered(broker, queue_id=2)
        properties = parse_properties(one.properties)
        assert properties == {
            "TIMER_DELAY_SEC": "2",
            "UNIQ_KEY": "u1",
            "a": "b",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
            "TIMER_OUT_MS": str(START_MS + 1000),
            "REAL_TOPIC": "Topic",
            "REAL_QID": "2",
            "TIMER_ENQUEUE_MS": str(START_MS),
            "TIMER_DEQUEUE_MS": properties["TIMER_DEQUEUE_MS"],
        }
        assert START_MS + 2000 <= int(properties["TIMER_DEQUEUE_MS"]) <= START_MS + 2100

    @pytest.mark.parametrize(
        "properties",
        [{"TIMER_DELIVER_MS": "5"}, {"TIMER_DELAY_SEC": "0"}, {"TIMER_DELAY_MS": "-5"}],
    )
    def test_a_time_that_is_over_is_none(
        self, broker: BrokerInMemory, properties: dict[str, str]
    ) -> None:
        answer = timed(broker, b"one", **properties)
        assert "recallHandle" not in answer.ext_fields
        assert bodies(broker) == [b"one"]

    def test_a_level_beats_a_time(self, broker: BrokerInMemory) -> None:
        timed(broker, b"one", TIMER_DELAY_SEC=100, DELAY=1)
        let(broker, 1.5)
        assert bodies(broker) == [b"one"]

    def test_many_of_one_slot_in_their_order(self, broker: BrokerInMemory) -> None:
        sent = [f"{n:04}".encode() for n in range(700)]
        for number, body in enumerate(sent):
            timed(broker, body, TIMER_DELIVER_MS=START_MS + 5000 + number)
        let(broker, 5)
        assert bodies(broker) == []
        let(broker, 1)
        assert bodies(broker) == sent

    def test_nothing_runs_while_nothing_waits(self, broker: BrokerInMemory) -> None:
        let(broker, 5)
        calls = {str(call.func) for call in broker.clock.getDelayedCalls()}
        assert not any("timer" in name.lower() and "delivery" in name.lower() for name in calls)

    def test_beyond_the_window_it_rolls(self) -> None:
        broker = BrokerInMemory(timer_roll_window_slot=8)
        timed(broker, b"one", TIMER_DELAY_SEC=30, UNIQ_KEY="u")
        let(broker, 29.9, 0.1)
        assert bodies(broker) == []
        let(broker, 1.2, 0.1)
        (one,) = delivered(broker)
        assert int(parse_properties(one.properties)["TIMER_ROLL_TIMES"]) >= 3

    def test_a_clock_that_is_set_back(self, broker: BrokerInMemory) -> None:
        timed(broker, b"one", TIMER_DELAY_SEC=2)
        let(broker, 1)
        broker.shift_ms = -5000
        timed(broker, b"two", TIMER_DELAY_SEC=1)
        let(broker, 8)
        assert sorted(bodies(broker)) == [b"one", b"two"]


class TestRefusals:
    @pytest.mark.parametrize(
        "properties",
        [
            {"TIMER_DELAY_SEC": "259201"},
            {"TIMER_DELAY_SEC": "abc"},
            {"TIMER_DELAY_SEC": "1_0"},
            {"TIMER_DELIVER_MS": str(1 << 80)},
            {"TIMER_DELIVER_MS": "5", "TIMER_DEL_UNIQKEY": "T+u"},
        ],
    )
    def test_illegal(self, broker: BrokerInMemory, properties: dict[str, str]) -> None:
        answer = timed(broker, b"one", **properties)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "timer message illegal" in answer.remark

    def test_no_wheel(self) -> None:
        broker = BrokerInMemory(timer_wheel_enable=False)
        answer = timed(broker, b"one", TIMER_DELAY_SEC=1)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "timerWheelEnable" in answer.remark
        assert not broker.files.exists("/store/timerwheel")

    def test_no_room_for_what_the_delivery_adds(self, broker: BrokerInMemory) -> None:
        answer = timed(broker, b"one", TIMER_DELAY_SEC=1, x="x" * 32_500)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert timed(broker, b"two", TIMER_DELAY_SEC=1, x="x" * 31_500).code == 0
        let(broker, 3)
        assert bodies(broker) == [b"two"]

    def test_too_many_for_one_slot(self) -> None:
        broker = BrokerInMemory(timer_congest_num_each_slot=10)
        codes = [timed(broker, b"x", TIMER_DELIVER_MS=START_MS + 9000).code for _ in range(200)]
        assert codes[:11] == [0] * 11
        assert set(codes[11:]) == {0, ResponseCode.SYSTEM_ERROR}
        assert codes.count(0) <= 20
        assert timed(broker, b"x", TIMER_DELIVER_MS=START_MS + 19_000).code == 0


class TestStarts:
    def again(self, broker: BrokerInMemory, *, after: float = 0, **store: Any) -> BrokerInMemory:
        """The broker stopped and started again, so many seconds later."""
        broker.stop()
        clock = MemoryReactorClock()
        clock.advance(broker.clock.seconds() + after)
        return BrokerInMemory(broker.files, clock=clock, **store)

    def test_what_waits_is_delivered_by_the_next_one_once(self, broker: BrokerInMemory) -> None:
        for second in range(1, 8):
            timed(broker, str(second).encode(), TIMER_DELAY_SEC=second)
        let(broker, 3.5)
        assert bodies(broker) == [b"1", b"2", b"3"]
        broker = self.again(broker)
        let(broker, 10)
        assert bodies(broker) == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]

    def test_a_slot_that_was_delivered_in_part_is_delivered_again(
        self, broker: BrokerInMemory
    ) -> None:
        for number in range(10):
            timed(broker, str(number).encode(), TIMER_DELIVER_MS=START_MS + 5050 + number * 100)
        let(broker, 5.5)
        assert len(bodies(broker)) == 5
        broker = self.again(broker)
        let(broker, 3)
        first = [str(number).encode() for number in range(5)]
        assert bodies(broker) == first * 2 + [str(number).encode() for number in range(5, 10)]

    def test_what_was_delivered_before_that_slot_is_not(self, broker: BrokerInMemory) -> None:
        """It was sent behind a message that waits in the slot."""
        timed(broker, b"long", TIMER_DELIVER_MS=START_MS + 10_700, UNIQ_KEY="long")
        for number in range(6):
            timed(broker, b"%d" % number, TIMER_DELAY_MS=2000, UNIQ_KEY=f"k{number}")
            let(broker, 1, 0.05)
        let(broker, 4.2, 0.05)
        assert bodies(broker) == [b"%d" % number for number in range(6)]
        broker = self.again(broker)
        let(broker, 5, 0.05)
        assert bodies(broker) == [b"%d" % number for number in range(6)] + [b"long"]

    def test_what_came_late_is_delivered_once(self, broker: BrokerInMemory) -> None:
        """The slots of its time were over when it was let in."""
        part = broker.broker[Timer]
        let(broker, 2.5)
        part.books.go_to(START_MS + 2000)
        work = part.engine.work
        assert work is not None
        intake, work._intake = work._intake, None
        for number in range(3):
            timed(broker, b"%d" % number, TIMER_DELAY_MS=5 + number)
        let(broker, 1.2)
        part.books.go_to(START_MS + 3000)
        work._intake = intake
        let(broker, 1.5)
        assert bodies(broker) == [b"0", b"1", b"2"]
        broker = self.again(broker)
        let(broker, 5)
        assert bodies(broker) == [b"0", b"1", b"2"]

    def test_what_became_due_meanwhile(self, broker: BrokerInMemory) -> None:
        for second in (2, 5, 50, 700):
            timed(broker, str(second).encode(), TIMER_DELAY_SEC=second)
        broker = self.again(broker, after=60)
        let(broker, 1)
        assert bodies(broker) == [b"2", b"5", b"50"]
        let(broker, 700, 1)
        assert bodies(broker) == [b"2", b"5", b"50", b"700"]

    @pytest.mark.parametrize("lost", ["timerwheel", "timerlog", "config/timercheck", "all"])
    def test_lost_files_lose_no_message(self, broker: BrokerInMemory, lost: str) -> None:
        for second in (2, 20, 30):
            timed(broker, str(second).encode(), TIMER_DELAY_SEC=second)
        let(broker, 10, 0.1)
        broker.stop()
        for name in ("timerwheel", "timerlog", "config/timercheck"):
            if name == lost or lost == "all":
                broker.files.remove_tree(f"/store/{name}")
                if broker.files.exists(f"/store/{name}"):
                    broker.files.remove(f"/store/{name}")
        clock = MemoryReactorClock()
        clock.advance(15)
        again = BrokerInMemory(broker.files, clock=clock)
        let(again, 25, 0.1)
        found = bodies(again)
        assert found[:1] == [b"2"]
        if lost in ("config/timercheck", "all"):
            assert found[1:] == [b"2", b"20", b"30"], "how far it was is not known any more"
        else:
            assert found[1:] == [b"20", b"30"]

    def test_a_kill_delivers_again_what_the_last_second_delivered_at_most(self) -> None:
        files = MemoryFiles()
        broker = BrokerInMemory(files)
        for second in range(1, 30):
            timed(broker, str(second).encode(), TIMER_DELAY_SEC=second)
        let(broker, 10.3)
        clock = MemoryReactorClock()
        clock.advance(12)
        again = BrokerInMemory(files.kill(), clock=clock)
        let(again, 30, 0.1)
        found = [int(body) for body in bodies(again)]
        assert set(found) == set(range(1, 30))
        assert set(found[:10]) == set(range(1, 11))
        assert set(found[10:]) >= set(range(11, 30)) and min(found[10:]) >= 8


def by_topic(broker: BrokerInMemory, name: str) -> dict[str, float]:
    """The values of a figure of the timer's, by topic."""
    return {
        each.labels["topic"]: each.value
        for each in broker.broker[Timer].metrics()
        if each.name == name and not isinstance(each.value, Distribution)
    }


def test_what_comes_and_goes_is_told_by_topic(broker: BrokerInMemory) -> None:
    timed(broker, b"x", TIMER_DELAY_SEC=1)
    timed(broker, b"x", TIMER_DELAY_SEC=1)
    broker.send(b"y", topic="Other", properties={"TIMER_DELAY_SEC": "60"})
    let(broker, 3)
    entered, delivered = "rocketmq_timer_enqueue_total", "rocketmq_timer_dequeue_total"
    assert by_topic(broker, entered) == {"Topic": 2, "Other": 1}
    assert by_topic(broker, delivered) == {"Topic": 2}
    broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="Topic"))
    assert by_topic(broker, entered) == {"Other": 1}
    assert by_topic(broker, delivered) == {}


def test_what_rolls_is_told_by_its_own_topic() -> None:
    broker = BrokerInMemory(timer_roll_window_slot=8)
    timed(broker, b"x", TIMER_DELAY_SEC=20)
    let(broker, 22)
    assert by_topic(broker, "rocketmq_timer_dequeue_total").keys() == {"Topic"}
    assert by_topic(broker, "rocketmq_timer_dequeue_total")["Topic"] > 1


def test_counts_and_what_is_told(broker: BrokerInMemory) -> None:
    part = broker.broker[Timer]
    for second in (1, 5, 5):
        timed(broker, b"x", TIMER_DELAY_SEC=second)
    assert part.books.counts.of("Topic") == 3
    assert part.runtime_info()["timerCongestNum"] == "3"
    told = [(each.labels, each.value) for each in part.metrics() if "timing" in each.name]
    storage = {"storage_type": "local", "storage_medium": "disk"}
    assert told == [({"topic": "Topic"} | storage, 3)]
    let(broker, 2)
    assert part.books.counts.of("Topic") == 2
    info = part.runtime_info()
    assert (info["timerCongestNum"], info["timerReadBehind"]) == ("2", "0")
    let(broker, 10, 0.05)
    info = part.runtime_info()
    assert part.books.counts.of("Topic") == 0
    assert (info["timerCongestNum"], info["timerOffsetBehind"]) == ("0", "0")
    assert float(info["timerEnqueueTps"]) > 0 and float(info["timerDequeueTps"]) > 0
