"""Timed messages of a broker in memory."""

from __future__ import annotations

from typing import Any

from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.broker.timer.progress import decode_timer_checkpoint
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory, fired


def timed(broker: BrokerInMemory, body: bytes, queue_id: int = 0, **properties: Any) -> Any:
    """The answer to a send with properties."""
    values = {name: str(value) for name, value in properties.items()}
    answer = broker.send(body, properties=values, queue_id=queue_id)
    assert isinstance(answer, RemotingCommand)
    return answer


def let(broker: BrokerInMemory, seconds: float, step: float = 0.01) -> None:
    """So many seconds pass, in steps; what is to be done at the end is done."""
    for _ in range(round(seconds / step)):
        broker.clock.advance(step)
    for _ in range(5):
        broker.clock.advance(0)


def delivered(
    broker: BrokerInMemory, topic: str = "Topic", queue_id: int = 0
) -> list[StoredMessage]:
    """What a queue has."""
    found: list[StoredMessage] = []
    while True:
        read = broker.store.read_queue(topic, queue_id, len(found), 1000, 1 << 24)
        if not read.data:
            return found
        found += decode_records(read.data)


def bodies(broker: BrokerInMemory, topic: str = "Topic") -> list[bytes]:
    """What queue 0 has."""
    return [message.body for message in delivered(broker, topic)]


def stop_delivering(broker: BrokerInMemory) -> None:
    """The timer does nothing any more."""
    work = broker.broker[Timer].engine.work
    assert work is not None
    work.pause()


def cut(broker: BrokerInMemory, end: int) -> None:
    """The log ends at `end` from now on."""
    done = broker.broker[Writing].truncation.cut(end)
    for _ in range(30):
        broker.clock.advance(0)
    fired(done)


def cut_between(broker: BrokerInMemory, end: int) -> None:
    """The master is none for a while, and the log ends at `end` from then on."""
    broker.become(RoleState(Role.ISOLATED, 0))
    cut(broker, end)
    broker.become(RoleState(Role.MASTER, 0))


class Pair:
    """A master, and a slave that has what `copy` gave it."""

    def __init__(self, **store: Any) -> None:
        self.clock = MemoryReactorClock()
        self.master = BrokerInMemory(clock=self.clock, **store)
        self.slave = BrokerInMemory(
            clock=self.clock, address="127.0.0.1:10921", broker_role="SLAVE", **store
        )

    def copy_log(self) -> None:
        store, to = self.master.store, self.slave.store
        while to.written_offset < store.written_offset:
            data = store.read_log(to.written_offset, 1 << 16)
            self.slave.commit.append_raw(to.written_offset, data)
        let(self.slave, 0.05)

    def copy(self) -> None:
        """The log, and how far the master's timer is."""
        self.copy_log()
        told = self.master.ask(RequestCode.GET_TIMER_CHECK_POINT)
        self.slave.timer.follow(decode_timer_checkpoint(told.body))
        let(self.slave, 0.01)

    def take_over(self) -> BrokerInMemory:
        """The master is gone, the slave is one."""
        self.master.network.stop(self.master.address)
        stop_delivering(self.master)
        self.slave.become(RoleState(Role.MASTER, 0))
        return self.slave
