"""What waits is found out anew where a log is cut, comes from a master, or from stock."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.transactions.part import Transactions
from rocketmq_tw.broker.transactions.progress import SettledProgress
from rocketmq_tw.broker.transactions.takeover import Takeover
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.message.record import decode_record
from tests.support.broker import BrokerInMemory, fired, ok
from tests.support.transactions import (
    COMMIT,
    HALF,
    OP,
    ROLLBACK,
    SYSTEM_GROUP,
    answer,
    begin,
    bodies,
    connect,
    end,
    let,
    ops,
    questions,
)


def cut(broker: BrokerInMemory, end_offset: int) -> None:
    done = broker.broker[Writing].truncation.cut(end_offset)
    let(broker, 0.5)
    fired(done)


@pytest.mark.parametrize("confirmed", [True, False])
def test_what_is_cut_off_is_settled_no_more(confirmed: bool) -> None:
    """Also what no queue has yet: that is settled once the log has it."""
    broker = BrokerInMemory()
    peer = connect(broker)
    first, second, third = (begin(broker, body) for body in (b"1", b"2", b"3"))
    ok(end(broker, first))
    end_offset = broker.store.end_offset
    if not confirmed:
        let(broker, 1)
        broker.store.dispatch_limit = end_offset
    ok(end(broker, second, ROLLBACK))
    ok(end(broker, third))
    let(broker, 2)
    assert broker.offsets.query(SYSTEM_GROUP, HALF, 0) == 3
    broker.become(RoleState(Role.SLAVE, 1))
    cut(broker, end_offset)
    assert broker.offsets.query(SYSTEM_GROUP, HALF, 0) == 1
    assert broker.offsets.query(SYSTEM_GROUP, OP, 0) <= 1
    broker.store.dispatch_limit = None
    broker.become(RoleState(Role.ISOLATED, 1))
    broker.become(RoleState(Role.MASTER, 0))
    let(broker, 10)
    asked = {each.msg_id: each for each in questions(peer)}
    assert asked.keys() == {"ID-2", "ID-3"}
    ok(answer(broker, asked["ID-3"], COMMIT))
    ok(answer(broker, asked["ID-2"], ROLLBACK))
    assert bodies(broker) == {b"1": 1, b"3": 1}


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_what_was_decided_and_is_in_no_queue_yet_is_not_asked_about(decision: int) -> None:
    """Under controllers a start fills the queues with what the checkpoint says was confirmed; the
    rest follows once this broker is the master, and a moment later than that."""
    broker = BrokerInMemory()
    ok(broker.send(b"before"))
    let(broker, 1)
    confirmed = broker.store.dispatched_offset
    ok(end(broker, begin(broker, b"decided"), decision))
    begin(broker, b"waits")
    let(broker, 2)
    broker.stop()
    again = BrokerInMemory(broker.files, clock=broker.clock, started=False)
    again.store.dispatch_limit = confirmed
    again.start()
    peer = connect(again)
    let(again, 1)
    assert again.store.max_queue_offset(HALF, 0) == 0
    again.store.dispatch_limit = None
    again.commit.confirmed()
    let(again, 40)
    assert {each.msg_id for each in questions(peer)} == {"ID-waits"}
    ok(answer(again, questions(peer)[-1], COMMIT))
    assert bodies(again) == {b"before": 1, b"waits": 1} | (
        {b"decided": 1} if decision == COMMIT else {}
    )


def test_a_slave_whose_offsets_came_before_its_log() -> None:
    """What its master had settled, and it has not heard of, waits."""
    broker = BrokerInMemory()
    begin(broker, b"lost")
    decided = begin(broker, b"decided")
    ok(end(broker, decided))
    broker.become(RoleState(Role.SLAVE, 1))
    broker.offsets.commit(SYSTEM_GROUP, HALF, 0, 2)
    broker.offsets.commit(SYSTEM_GROUP, OP, 0, 1)
    broker.become(RoleState(Role.ISOLATED, 1))
    broker.become(RoleState(Role.MASTER, 0))
    peer = connect(broker)
    let(broker, 10)
    assert [asked.msg_id for asked in questions(peer)] == ["ID-lost"]


def test_offsets_ahead_of_the_queues() -> None:
    broker = BrokerInMemory()
    begin(broker, b"lost")
    ok(end(broker, begin(broker, b"decided")))
    broker.stop()
    again = BrokerInMemory(broker.files, clock=broker.clock, started=False)
    again.start()
    again.become(RoleState(Role.ISOLATED, 0))
    again.offsets.commit(SYSTEM_GROUP, HALF, 0, 100)
    again.offsets.commit(SYSTEM_GROUP, OP, 0, 100)
    again.become(RoleState(Role.MASTER, 0))
    peer = connect(again)
    let(again, 10)
    assert [asked.msg_id for asked in questions(peer)] == ["ID-lost"]
    let(again, 1)
    assert again.offsets.query(SYSTEM_GROUP, HALF, 0) <= 3


def put_by_stock(broker: BrokerInMemory, position: int, **properties: str) -> None:
    """A copy as stock puts it back, and no op message for the one before."""
    record = broker.store.record_at(position)
    assert record is not None
    message = decode_record(record)
    text = message.properties + join_properties(properties)
    broker.store.append(
        StoredMessage(
            topic=HALF,
            queue_id=0,
            body=message.body,
            properties=text,
            born_timestamp=message.born_timestamp,
        )
    )
    broker.store.write_pending()
    broker.store.dispatch()


def test_a_copy_that_stock_put_back_stands_for_the_one_before() -> None:
    broker = BrokerInMemory()
    sent = begin(broker)
    position = int(sent["msgId"][-16:], 16)
    broker.become(RoleState(Role.ISOLATED, 0))
    put_by_stock(broker, position, TRANSACTION_CHECK_TIMES="1")
    broker.become(RoleState(Role.MASTER, 0))
    peer = connect(broker)
    let(broker, 29)
    assert not questions(peer)
    assert ops(broker) == ["0"]
    let(broker, 2)
    (asked,) = questions(peer)
    assert asked.tran_state_table_offset == 2
    ok(answer(broker, asked, COMMIT))
    assert bodies(broker) == {b"x": 1}


def test_op_messages_of_both_versions() -> None:
    broker = BrokerInMemory()
    for n in range(5):
        begin(broker, b"%d" % n)
    broker.become(RoleState(Role.ISOLATED, 0))
    for body in (b"0", b"1,3,", b"nonsense", b"99999999999999999999,"):
        broker.store.append(
            StoredMessage(topic=OP, queue_id=0, body=body, properties=b"TAGS\x01d\x02")
        )
    broker.store.append(StoredMessage(topic=OP, queue_id=0, body=b"4", properties=b""))
    broker.store.write_pending()
    broker.store.dispatch()
    broker.become(RoleState(Role.MASTER, 0))
    peer = connect(broker)
    let(broker, 10)
    assert sorted(asked.msg_id or "" for asked in questions(peer)) == ["ID-2", "ID-4"]


def test_many_that_wait_are_found_in_slices() -> None:
    broker = BrokerInMemory()
    for n in range(700):
        begin(broker, b"%d" % n)
    broker.stop()
    again = BrokerInMemory(broker.files, clock=broker.clock)
    let(again, 0.2)
    work = again.broker[Transactions].work
    assert work is not None and work.book is not None
    assert work.pending == 700


@pytest.mark.parametrize("with_bodies", [False, True])
def test_the_bodies_of_those_that_wait_are_in_memory_on_demand(with_bodies: bool) -> None:
    broker = BrokerInMemory()
    for n in range(40):
        begin(broker, b"%02d" % n * 1000)
    let(broker, 1)
    progress = SettledProgress(broker.offsets, broker.store)
    takeover = Takeover(broker.store, progress, 0, with_bodies=with_bodies)
    for _ in takeover.steps():
        pass
    sizes = [len(half.message.body) for half in takeover.waiting.values()]
    assert sizes == [2000 if with_bodies else 0] * 40
