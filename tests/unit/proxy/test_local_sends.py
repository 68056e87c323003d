"""Messages that a proxy hands to the broker in whose process it is: they are stored as those that
it is asked to store by a request, and there is no other difference."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.sending.part import Sending
from rocketmq_tw.broker.sending.send import REMARKS
from rocketmq_tw.broker.writing.incoming import Incoming
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.client.message import SendResult, SendStatus
from rocketmq_tw.client.preparing import Prepared, properties_text
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.model import TRANSACTION_PREPARED
from rocketmq_tw.net.errors import ConnectError, RemotingError, RequestTimeout
from rocketmq_tw.proxy.brokers import Outgoing, send_by_request
from rocketmq_tw.proxy.local.brokers import LocalBrokers
from rocketmq_tw.store.errors import NotWritableError
from rocketmq_tw.store.message_store import MessageStore
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


def outgoing(prepared: Prepared, properties: dict[str, str] | None = None) -> Outgoing:
    """What the proxy's checks make of a message."""
    return Outgoing(prepared, (prepared.message_id,), frozenset(), "", BORN, properties)


class Site:
    """A broker, and what a proxy in its process asks. `handed` counts the messages that went to the
    log without a request."""

    def __init__(self, **settings: Any) -> None:
        files = FaultyFiles(MemoryFiles())
        self.faults = files.faults
        self.broker = BrokerInMemory(
            files,
            broker={"enable_topic_message_type_check": True},
            timer_wheel_enable=True,
            threads=Threads(eager=False),
            **settings,
        )
        self.clock = self.broker.clock
        self.broker.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
        self.broker.add_topic("Fifo", attributes={"+message.type": "FIFO"})
        # The master is another one, where this broker is none: it is gone.
        others = PlayedBrokers()
        others.gone.add("broker-a")
        self.brokers = LocalBrokers(self.clock, self.broker.broker, others)
        # The topics are written and announced.
        self.pass_time(10)
        self.handed = 0
        plain = self.broker.broker[Sending].plain
        assert plain is not None
        store = plain.store

        def counted(*arguments: Any) -> bool:
            was_stored = store(*arguments)
            self.handed += was_stored
            return was_stored

        plain.store = counted  # type: ignore[method-assign]

    def pass_time(self, turns: int = 1) -> None:
        """Some turns of the reactor, with what threads have to do between them."""
        for _ in range(turns):
            self.clock.pump([0, 0.05])
            self.broker.threads.run()
        self.clock.advance(0)

    def send(self, prepared: Prepared, properties: dict[str, str], queue_id: int = 0) -> list[Any]:
        """Hands a message over; what that ends with stands in the list once it does."""
        queue = MessageQueue(topic=prepared.topic, broker_name="broker-a", queue_id=queue_id)
        return ended(self.brokers.send(queue, outgoing(prepared, dict(properties)), 3.0))

    def ask(self, prepared: Prepared, queue_id: int = 0) -> list[Any]:
        """Has the broker be asked by a request."""
        queue = MessageQueue(topic=prepared.topic, broker_name="broker-a", queue_id=queue_id)
        return ended(send_by_request(self.brokers, queue, outgoing(prepared), 3.0))

    def become(self, role: Role) -> None:
        """Leads the broker into a role, as far as its disk lets it."""
        self.broker.threads.eager = True
        self.broker.threads.run()
        with suppress(NotWritableError, ValueError):
            self.broker.become(RoleState(role, 0 if role is Role.MASTER else 1))
        self.broker.threads.eager = False

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
        self.faults.clear()
        self.broker.threads.eager = True
        self.broker.threads.run()
        with suppress(NotWritableError):
            self.broker.stop()
        files = self.broker.files
        assert isinstance(files, FaultyFiles)
        return dict(stored_files(files.inner))


def without_requests(site: Site) -> None:
    """Has the broker answer no request that sends: what is stored was handed over."""
    del site.broker.listener.handlers[RequestCode.SEND_MESSAGE_V2]


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
    if dice.randrange(2):
        own = dice.choice(({}, {"TAGS": "tag"}, {"KEYS": "a b"}, {"WAIT": "false"}, {"k": "Käse"}))
        return *message(number, **own), dice.randrange(4)
    names = dice.sample(sorted(PROPERTIES), dice.choice((0, 1, 1, 2)))
    own = {name: PROPERTIES[name] for name in names}
    body = dice.choice((b"body", b"body", b"", b"x" * 5000, b"x" * (5 << 20)))
    prepared, properties = message(number, dice.choice(("Topic", *TOPICS)), body, **own)
    if not dice.randrange(10):
        prepared = prepared._replace(sys_flag=TRANSACTION_PREPARED)
    return prepared, properties, dice.choice((0, 0, 1, 3, 4, 99, -1))


#: What happens while messages are on their way, by name.
EVENTS: dict[str, Callable[[Site], object]] = {
    "time": lambda site: site.clock.pump([1] * 6),
    "a role": lambda site: site.become(Role.SLAVE),
    "the role again": lambda site: site.become(Role.MASTER),
    "a fault": lambda site: site.faults.append(Fault("pwrite", "commitlog", times=1)),
    "an fsync's fault": lambda site: site.faults.append(Fault("fsync", "commitlog", times=1)),
}


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_both_ways_are_alike(flush: str, seed: int) -> None:
    """What is stored, answered, counted and refused; while disks fail and roles change, too."""
    dice = Random(seed)
    events = dice.sample(sorted(EVENTS), dice.choice((0, 1, 1, 2)))
    handed, asked = (Site(flush_disk_type=flush) for _ in range(2))
    under_way: list[tuple[Prepared, list[Any], list[Any]]] = []
    for number in range(60):
        prepared, properties, queue_id = any_message(number, dice)
        # The broker chooses among queues where the producer does not.
        random.seed(number)
        found = handed.send(prepared, properties, queue_id)
        random.seed(number)
        under_way.append((prepared, found, asked.ask(prepared, queue_id)))
        event = dice.choice(events) if events and not dice.randrange(12) else None
        rests = dice.randrange(3) > 0
        for site in (handed, asked):
            if event is not None:
                EVENTS[event](site)
            if rests:
                site.pass_time(2)
    for site in (handed, asked):
        site.pass_time(100)
    for prepared, found, expected in under_way:
        assert len(expected) == 1 and found == expected, prepared
    assert not asked.handed
    if not events:
        assert handed.handed > 20
    figures = handed.figures()
    assert figures == asked.figures()
    assert figures["in flight"] == 0
    assert handed.files() == asked.files()


def test_a_plain_message_is_handed_over() -> None:
    """Where no handler answers requests it is stored all the same."""
    site = Site()
    without_requests(site)
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
    site.become(Role.SLAVE)
    assert sending.plain is None
    assert [each[0] for each in site.send(*message())] == [ConnectError]
    site.become(Role.MASTER)
    site.send(*message(1))
    site.clock.advance(0)
    assert [each.body for each in site.broker.consume("Topic", 0)] == [b"body"]


@pytest.mark.parametrize("fault", [None, Fault("fsync", "commitlog")])
def test_a_disk_that_takes_too_long(fault: Fault | None) -> None:
    """The answer is that of a request that is not answered; the message may be stored."""
    site = Site(flush_disk_type="SYNC_FLUSH")
    without_requests(site)
    found = site.send(*message())
    site.clock.pump([0, 1, 1, 0.5])
    assert found == []
    site.clock.advance(0.6)
    assert found == [(RequestTimeout, RequestCode.SEND_MESSAGE_V2, None)]
    if fault is not None:
        site.faults.append(fault)
    site.pass_time(40)
    assert len(found) == 1
    assert site.broker.send_checks.in_flight == 0
    bodies = [each.body for each in site.broker.consume("Topic", 0)]
    assert bodies == ([b"body"] if fault is None else [])


def test_a_log_that_cannot_be_written() -> None:
    site = Site()
    without_requests(site)
    site.faults.append(Fault("pwrite", "commitlog"))
    found = site.send(*message())
    site.clock.advance(0)
    assert found == [(BrokerError, ResponseCode.SYSTEM_ERROR, REMARKS[ResponseCode.SYSTEM_ERROR])]


def test_figures_that_fail_hold_up_no_answer() -> None:
    site = Site()
    without_requests(site)
    broken = patch.object(Incoming, "count", side_effect=RuntimeError("no figures"))
    with broken, capturedLogs() as logs:
        found = site.send(*message())
        site.clock.advance(0)
    assert [each.status for each in found] == [SendStatus.SEND_OK]
    assert len(logs) == 1


def test_a_store_that_fails_is_a_broker_s_refusal() -> None:
    """Then another broker is tried, as where it is asked by a request."""
    site = Site()
    without_requests(site)
    broken = patch.object(MessageStore, "append", side_effect=RuntimeError("broken"))
    with broken, capturedLogs() as logs:
        (found,) = site.send(*message())
    assert found[:2] == (BrokerError, ResponseCode.SYSTEM_ERROR)
    assert "RuntimeError" in found[2]
    assert len(logs) == 1
