"""Check points that other brokers left: in a timer of stock, or about another broker's messages."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.broker.pop.revive_part import Reviving
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.timer.progress import TimerCheckpoint, TimerProgress
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.store.errors import NotWritableError
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.pop import AckMsg, PopCheckPoint
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import REVIVE, Popper, pass_time

TIMER = "rmq_sys_wheel_timer"


def with_messages(count: int) -> BrokerInMemory:
    broker = BrokerInMemory()
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    for number in range(count):
        ok(broker.send(b"%d" % number))
    Popper(broker)
    return broker


def check_point(broker: BrokerInMemory, count: int, name: str = "broker-a") -> PopCheckPoint:
    now = broker.now_ms()
    return PopCheckPoint(
        broker_name=name,
        group="G",
        topic="Topic",
        offset_diffs=list(range(count)),
        count=count,
        invisible_time=10_000,
        pop_time=now,
        revive_time=now + 10_000,
    )


def store(broker: BrokerInMemory, message: StoredMessage) -> None:
    broker.store.append(message)
    broker.store.write_pending()
    broker.store.fsync()
    broker.store.dispatch()


def timed(body: bytes, tag: str, due_ms: int) -> StoredMessage:
    """As stock's broker gives it to its timer."""
    properties = {
        "TAGS": tag,
        "TIMER_DELIVER_MS": str(due_ms),
        "TIMER_OUT_MS": str(due_ms // 1000 * 1000),
        "REAL_TOPIC": REVIVE,
        "REAL_QID": "3",
    }
    return StoredMessage(topic=TIMER, queue_id=0, body=body, properties=join_properties(properties))


def test_what_a_timer_holds_is_taken_over_once() -> None:
    broker = with_messages(3)
    point = check_point(broker, 3)
    # From here on it stands for a broker of stock's, which leaves them to its timer.
    broker.become(RoleState(Role.ISOLATED, 0))
    delivered = timed(b"{}", "ck", point.pop_time - 60_000)
    ack = AckMsg(
        ack_offset=1, broker_name="broker-a", group="G", topic="Topic", pop_time=point.pop_time
    )
    store(broker, delivered)
    store(broker, timed(encode_body(point), "ck", point.revive_time - 1000))
    store(broker, timed(encode_body(ack), "ack", point.revive_time))
    store(broker, StoredMessage(topic=TIMER, queue_id=0, body=b"a user's", properties=b""))
    broker.offsets.commit("G", "Topic", 0, 3)
    broker.stop()
    TimerProgress(broker.files, "/store/config").write(TimerCheckpoint(read_ms=point.pop_time))
    again = BrokerInMemory(broker.files, clock=broker.clock, started=False)
    starting = again.broker.start()
    for _ in range(20):
        again.clock.advance(0.01)
    assert starting.called
    assert [m.tags for m in again.consume(REVIVE, 3)] == ["ck", "ack"]
    popper = Popper(again)
    assert popper.pop() == []
    pass_time(again, 14)
    assert popper.bodies() == [b"0", b"2"]
    again.stop()
    third = BrokerInMemory(again.files, clock=again.clock)
    assert len(third.consume(REVIVE, 3)) == 2


def test_what_a_timer_holds_waits_for_a_disk_that_takes_it() -> None:
    """What could not be stored at the first start is taken over at the next one."""
    broker = with_messages(1)
    point = check_point(broker, 1)
    broker.become(RoleState(Role.ISOLATED, 0))
    store(broker, timed(encode_body(point), "ck", point.revive_time - 1000))
    broker.offsets.commit("G", "Topic", 0, 1)
    broker.stop()
    files = FaultyFiles(broker.files)
    files.faults.append(Fault("pwrite", "commitlog"))
    second = BrokerInMemory(files, clock=broker.clock)
    assert second.consume(REVIVE, 3) == []
    with pytest.raises(NotWritableError):
        second.stop()
    files.faults.clear()
    third = BrokerInMemory(files, clock=broker.clock)
    assert [each.tags for each in third.consume(REVIVE, 3)] == ["ck"]
    popper = Popper(third)
    pass_time(third, 14)
    assert popper.bodies() == [b"0"]


def test_another_broker_s_messages_are_tried_again_later() -> None:
    broker = with_messages(2)
    body = encode_body(check_point(broker, 2, "broker-b"))
    store(broker, StoredMessage(topic=REVIVE, queue_id=0, body=body, properties=b"TAGS\x01ck\x02"))
    pass_time(broker, 14)
    points = [decode_body(PopCheckPoint, m.body) for m in broker.consume(REVIVE, 0)[1:]]
    assert [(p.start_offset, p.re_put_times, p.invisible_time) for p in points] == [
        (0, "1", 20_000),
        (1, "1", 20_000),
    ]
    assert broker.topics.get("%RETRY%G_Topic") is None
    pass_time(broker, 12)
    points = [decode_body(PopCheckPoint, m.body) for m in broker.consume(REVIVE, 0)[3:]]
    assert [p.re_put_times for p in points] == ["2", "2"]
    assert broker.broker[Reviving].pending() == 2


def test_what_is_no_check_point_is_passed_over() -> None:
    broker = with_messages(1)
    numbers = (b'"n":128', b'"n":1000000000', b'"so":9223372036854775808', b'"n":1,"d":[1e99]')
    many = b'"n":1,"d":[%b]' % b",".join([b"1"] * 128)
    points = [b'{"t":"Topic","c":"G",%b}' % fields for fields in (*numbers, many)]
    for body in (b"{", b"[]", b"{}", b"\xff", *points):
        store(
            broker, StoredMessage(topic=REVIVE, queue_id=0, body=body, properties=b"TAGS\x01ck\x02")
        )
    popper = Popper(broker, invisible_time=5_000)
    popper.pop()
    pass_time(broker, 9)
    assert popper.bodies() == [b"0"]


def test_a_check_point_that_anybody_sent_stops_no_other() -> None:
    broker = with_messages(2)
    popper = Popper(broker, invisible_time=5_000)
    for fields in (
        '"n":3,"so":-9223372036854775808',
        '"n":3,"so":9223372036854775807',
        '"n":2,"d":[-5,2147483647]',
        '"n":1,"q":-2147483648',
        '"n":1,"q":2147483647',
        '"n":-128',
        '"n":1,"so":1,"pt":-9223372036854775808,"it":-9223372036854775808',
        '"n":1,"bn":"broker-b","rp":"-128"',
        '"n":1,"bn":"broker-b","rp":"9999999999999999999999"',
        '"n":1,"bn":"broker-b","it":9223372036854775807,"pt":-9223372036854775807',
    ):
        body = f'{{"t":"Topic","c":"G",{fields}}}'.encode()
        ok(broker.send(body, topic=REVIVE, queue_id=0, properties={"TAGS": "ck"}))
    assert len(popper.pop()) == 2
    pass_time(broker, 12)
    assert {b"0", b"1"} <= set(popper.bodies())


def test_a_read_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = with_messages(2)
    popper = Popper(broker, invisible_time=5_000)
    popper.pop()
    read_queue = broker.store.read_queue

    def failing(topic: str, *arguments: Any) -> Any:
        if topic == "Topic":
            raise OSError("the disk does not answer")
        return read_queue(topic, *arguments)

    monkeypatch.setattr(broker.store, "read_queue", failing)
    pass_time(broker, 9)
    monkeypatch.undo()
    assert broker.topics.get("%RETRY%G_Topic") is None
    pass_time(broker, 3)
    assert popper.bodies() == [b"0", b"1"]


def test_there_is_no_other_store_to_roll_back() -> None:
    broker = with_messages(0)
    ok(broker.request(RemotingCommand.request(RequestCode.POP_ROLLBACK)))
    broker.become(RoleState(Role.SLAVE, 1))
    ok(broker.request(RemotingCommand.request(RequestCode.POP_ROLLBACK)))
