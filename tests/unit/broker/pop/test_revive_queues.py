"""Revive queues that the store has from when `reviveQueueNum` was larger."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.pop.revive_part import Reviving
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.pop import PopCheckPoint
from tests.support.broker import BrokerInMemory, fired, ok
from tests.support.pops import REVIVE, PoppedMessage, Popper, pass_time

COUNT = 8


def with_queues(files: MemoryFiles, count: int, **fields: object) -> BrokerInMemory:
    broker = BrokerInMemory(files, broker={"revive_queue_num": count}, **fields)
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    return broker


def popped_before(files: MemoryFiles) -> tuple[BrokerInMemory, list[PoppedMessage]]:
    """A broker with half as many revive queues as when each message was popped into another one."""
    former = with_queues(files, COUNT)
    for number in range(COUNT):
        ok(former.send(b"%d" % number))
    popper = Popper(former)
    popped = [popper.pop(max_msg_nums=1)[0] for _ in range(COUNT)]
    assert len(former.store.queue_ids(REVIVE)) == COUNT
    former.stop()
    broker = with_queues(files, COUNT // 2, clock=former.clock)
    pass_time(broker, 2)
    return broker, popped


def test_what_was_popped_before_comes_again() -> None:
    broker, _ = popped_before(MemoryFiles())
    assert broker.broker[Reviving].pending() == COUNT
    pass_time(broker, 70)
    assert set(Popper(broker).bodies()) == {b"%d" % number for number in range(COUNT)}


def test_what_was_popped_before_is_acknowledged_now() -> None:
    broker, popped = popped_before(MemoryFiles())
    popper = Popper(broker)
    popper.ack(*popped[:-1])
    popper.hide(popped[-1], 120_000)
    pass_time(broker, 70)
    assert popper.bodies() == []
    pass_time(broker, 70)
    assert popper.bodies() == [b"7"]


def test_new_pops_use_the_queues_that_are_configured() -> None:
    broker, _ = popped_before(MemoryFiles())
    ends = [broker.store.max_queue_offset(REVIVE, number) for number in range(COUNT)]
    for number in range(COUNT):
        ok(broker.send(b"%d" % number))
        Popper(broker).pop(max_msg_nums=1)
    moved = [broker.store.max_queue_offset(REVIVE, number) for number in range(COUNT)]
    assert moved[COUNT // 2 :] == ends[COUNT // 2 :]


def test_a_cut_opens_what_was_acknowledged_behind_it() -> None:
    broker, popped = popped_before(MemoryFiles())
    end = broker.store.end_offset
    popper = Popper(broker)
    popper.ack(*popped)
    pass_time(broker, 70)
    assert popper.bodies() == []
    assert broker.broker[Reviving].pending() == 0
    broker.become(RoleState(Role.ISOLATED, 0))
    done = broker.broker[Writing].truncation.cut(end)
    for _ in range(1_000):
        broker.clock.advance(0)
    fired(done)
    broker.stop()
    after = with_queues(broker.files, COUNT // 2, clock=broker.clock)  # type: ignore[arg-type]
    pass_time(after, 70)
    assert set(Popper(after).bodies()) == {b"%d" % number for number in range(COUNT)}


@pytest.mark.parametrize("queue_id", [0, 3, 7])
def test_what_stock_s_timer_holds_goes_into_a_queue_that_is_read(queue_id: int) -> None:
    files = MemoryFiles()
    former = with_queues(files, COUNT)
    ok(former.send(b"message"))
    Popper(former)
    former.offsets.commit("G", "Topic", 0, 1)
    now = former.now_ms()
    point = PopCheckPoint(
        broker_name="broker-a",
        group="G",
        topic="Topic",
        offset_diffs=[0],
        count=1,
        invisible_time=10_000,
        pop_time=now,
        revive_time=now + 10_000,
    )
    properties = {
        "TAGS": "ck",
        "TIMER_DELIVER_MS": str(now + 9_000),
        "TIMER_OUT_MS": str((now + 9_000) // 1000 * 1000),
        "REAL_TOPIC": REVIVE,
        "REAL_QID": str(queue_id),
    }
    former.stop()
    # Stock's broker had it in its timer when it stopped.
    stock = with_queues(files, COUNT, clock=former.clock, started=False)
    stock.store.load()
    stock.store.append(
        StoredMessage(
            topic="rmq_sys_wheel_timer",
            queue_id=0,
            body=encode_body(point),
            properties=join_properties(properties),
        )
    )
    stock.store.close()
    broker = with_queues(files, 2, clock=former.clock)
    pass_time(broker, 20)
    assert Popper(broker).bodies() == [b"message"]
