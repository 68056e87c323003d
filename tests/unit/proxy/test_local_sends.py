"""Messages that a proxy hands to the broker in whose process it is: they are stored as those that
it is asked to store by a request, and there is no other difference."""

from __future__ import annotations

import random
from errno import EIO
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.sending.part import Sending
from rocketmq_tw.broker.sending.send import REMARKS
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.client.message import SendResult, SendStatus
from rocketmq_tw.client.preparing import Prepared, properties_text
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.model import TRANSACTION_PREPARED
from rocketmq_tw.net.errors import ConnectError, RemotingError, RequestTimeout
from rocketmq_tw.proxy.brokers import send_by_request
from rocketmq_tw.proxy.local.brokers import LocalBrokers
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from tests.support.broker import BrokerInMemory, Threads
from tests.support.proxy import PlayedBrokers
from tests.support.stores import stored_files

BORN = 1_700_000_000_000
#: Properties that make a message special, and others.
PROPERTIES = {
    "TAGS": "tag",
    "KEYS": "one two",
    "region": "north",
    "name": "Käse",
    "WAIT": "false",
    "__SHARDINGKEY": "group",
    "DELAY": "3",
    "TIMER_DELIVER_MS": str(BORN + 5_000),
    "POP_CK": "0 1700000000000 60000 0 0 broker-a 0 0 0",
    "MSG_REGION": "elsewhere",
    "INNER_MULTI_DISPATCH": "LMQ_a",
}
TOPICS = (
    "Topic",
    "Fifo",
    "%RETRY%G",
    "RMQ_SYS_TRACE_TOPIC",
    "New",
    "SCHEDULE_TOPIC_XXXX",
    "no/topic",
)


class Site:
    """A broker, and what a proxy in its process asks."""

    def __init__(self, **settings: Any) -> None:
        self.broker = BrokerInMemory(
            broker={"enable_topic_message_type_check": True}, timer_wheel_enable=True, **settings
        )
        self.clock = self.broker.clock
        self.broker.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
        self.broker.add_topic("Fifo", attributes={"+message.type": "FIFO"})
        self.others = PlayedBrokers()
        self.brokers = LocalBrokers(self.clock, self.broker.broker, self.others)

    def send(self, prepared: Prepared, properties: dict[str, str], queue_id: int = 0) -> list[Any]:
        """Hands a message over; what that ends with stands in the list once it does."""
        queue = MessageQueue(topic=prepared.topic, broker_name="broker-a", queue_id=queue_id)
        return ended(self.brokers.send(queue, prepared, BORN, 3.0, dict(properties)))

    def ask(self, prepared: Prepared, queue_id: int = 0) -> list[Any]:
        """Has the broker be asked by a request."""
        queue = MessageQueue(topic=prepared.topic, broker_name="broker-a", queue_id=queue_id)
        return ended(send_by_request(self.brokers, queue, prepared, BORN, 3.0))

    def figures(self) -> dict[str, Any]:
        """All that is counted of sends."""
        return {
            "incoming": list(self.broker.broker[Writing].incoming.totals()),
            "times": self.broker.commit.times.distribution(),
            "traffic": {
                name: {key: (flow.messages, flow.size, flow.times) for key, flow in flows.items()}
                for name, flows in self.broker.traffic._flows.items()
            },
            "in flight": self.broker.send_checks.in_flight,
        }

    def files(self) -> dict[str, bytes]:
        """What the broker has stored, once it has stopped."""
        self.broker.stop()
        return dict(stored_files(self.broker.files))


def ended(sent: Deferred[SendResult]) -> list[Any]:
    """What a send ends with: its result, or the code and the reason of its refusal."""
    found: list[Any] = []

    def refused(failure: Any) -> None:
        error = failure.value
        assert isinstance(error, BrokerError | RemotingError), failure
        found.append((type(error), getattr(error, "code", None), getattr(error, "remark", None)))

    sent.addCallbacks(found.append, refused)
    return found


def message(
    number: int = 0, topic: str = "Topic", body: bytes = b"body", **own: str
) -> tuple[Prepared, dict[str, str]]:
    properties = {**own, "UNIQ_KEY": f"ID-{number}"}
    text = properties_text(properties)
    return Prepared(topic, body, text, 0, 0, properties["UNIQ_KEY"], False), properties


def any_message(number: int, dice: Random) -> tuple[Prepared, dict[str, str], int]:
    own = {
        name: PROPERTIES[name]
        for name in dice.sample(sorted(PROPERTIES), dice.choice((0, 1, 1, 2)))
    }
    body = dice.choice((b"body", b"body", b"", b"x" * 5000, b"x" * (5 << 20)))
    prepared, properties = message(number, dice.choice(("Topic", "Topic", *TOPICS)), body, **own)
    if not dice.randrange(10):
        prepared = prepared._replace(sys_flag=TRANSACTION_PREPARED)
    return prepared, properties, dice.choice((0, 0, 1, 3, 4, 99, -1))


@pytest.mark.parametrize("seed", range(20))
def test_both_ways_are_alike(seed: int) -> None:
    """Seed by seed: what is stored, answered, counted and refused."""
    dice = Random(seed)
    handed, asked = Site(), Site()
    for number in range(60):
        prepared, properties, queue_id = any_message(number, dice)
        # The broker chooses among queues where the producer does not.
        random.seed(number)
        found = handed.send(prepared, properties, queue_id)
        random.seed(number)
        expected = asked.ask(prepared, queue_id)
        for site in (handed, asked):
            site.clock.pump([0, 0.001])
        assert len(expected) == 1 and found == expected, (prepared, queue_id)
    figures = handed.figures()
    assert figures == asked.figures()
    assert figures["in flight"] == 0
    assert handed.files() == asked.files()


def test_a_plain_message_is_handed_over() -> None:
    """Where no handler answers requests it is stored all the same."""
    site = Site()
    del site.broker.listener.handlers[RequestCode.SEND_MESSAGE_V2]
    found = site.send(*message())
    assert found == []
    site.clock.advance(0)
    (result,) = found
    assert (result.status, result.queue_offset, result.message_id) == (
        SendStatus.SEND_OK,
        0,
        "ID-0",
    )
    (stored,) = site.broker.consume("Topic", 0)
    assert stored.body == b"body"


def test_only_a_master_that_serves_takes_it() -> None:
    site = Site()
    sending = site.broker.broker[Sending]
    assert sending.plain is not None
    site.broker.become(RoleState(Role.SLAVE, 1))
    assert sending.plain is None
    # The master is another one now, which is asked over the network.
    site.others.gone.add("broker-a")
    assert [each[0] for each in site.send(*message())] == [ConnectError]
    site.broker.become(RoleState(Role.MASTER, 0))
    site.send(*message(1))
    site.clock.advance(0)
    assert [each.body for each in site.broker.consume("Topic", 0)] == [b"body"]


def test_a_disk_that_takes_too_long() -> None:
    """The answer is that of a request that is not answered; the message may be stored."""
    site = Site(flush_disk_type="SYNC_FLUSH", threads=Threads(eager=False))
    found = site.send(*message())
    site.clock.pump([0, 1, 1, 0.5])
    assert found == []
    site.clock.advance(0.6)
    assert found == [(RequestTimeout, RequestCode.SEND_MESSAGE_V2, None)]
    site.broker.threads.run()
    site.clock.pump([0, 0.1])
    assert len(found) == 1
    assert site.broker.send_checks.in_flight == 0


def test_a_log_that_cannot_be_written() -> None:
    files = FaultyFiles(MemoryFiles())
    site = Site(files=files)
    assert site.send(*message()) == []
    files.faults.append(Fault("pwrite", error=EIO))
    found = site.send(*message(1))
    site.clock.advance(0)
    assert found == [(BrokerError, ResponseCode.SYSTEM_ERROR, REMARKS[ResponseCode.SYSTEM_ERROR])]
