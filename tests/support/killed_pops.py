"""Groups that pop at a broker that is killed and started again, or put back meanwhile."""

from __future__ import annotations

from typing import Any

from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.offsets import UpdateConsumerOffsetRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import Popper, pass_time

HIDDEN_MS = 5_000


def popping(**settings: Any) -> tuple[BrokerInMemory, Popper]:
    """Some was popped before the offsets were written last; more may come."""
    broker = BrokerInMemory(broker=settings)
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    popper = Popper(broker, invisible_time=HIDDEN_MS)
    send(broker, "old")
    popper.ack(*popper.pop())
    pass_time(broker, 6)
    return broker, popper


def send(broker: BrokerInMemory, *bodies: str, tags: str = "") -> None:
    for body in bodies:
        ok(broker.send(body.encode(), properties={"TAGS": tags} if tags else None))


def killed(broker: BrokerInMemory) -> BrokerInMemory:
    """The broker started again after a kill -9."""
    assert isinstance(broker.files, MemoryFiles)
    clock = MemoryReactorClock()
    clock.advance(broker.clock.seconds())
    return BrokerInMemory(broker.files.kill(), clock=clock)


def reset(broker: BrokerInMemory, offset: int) -> None:
    broker.offsets.reset("G", "Topic", 0, offset)


def committed(broker: BrokerInMemory, offset: int) -> None:
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group="G", topic="Topic", queue_id=0, commit_offset=offset
    )
    ok(broker.request(RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)))


def cloned(broker: BrokerInMemory, offset: int) -> None:
    Popper(broker, group="Other")
    broker.offsets.commit("Other", "Topic", 0, offset)
    broker.offsets.clone("Other", "G", "Topic")
