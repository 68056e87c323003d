"""What is sent by way of the proxy, on a real broker in memory."""

import gzip
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, fail

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import ConnectionLost
from rocketmq_tw.proxy.brokers import IProxyClient
from rocketmq_tw.proxy.messaging.broker_times import BrokerTimes
from rocketmq_tw.proxy.messaging.claims import Claims
from rocketmq_tw.proxy.messaging.dead_letters import DeadLetters
from rocketmq_tw.proxy.messaging.messages import message_of, timestamp_of
from rocketmq_tw.proxy.messaging.popped import Poll, PopClient, PoppedMessage
from rocketmq_tw.proxy.messaging.renewal import Renewal
from rocketmq_tw.proxy.messaging.transactions import HalfPlaces, TransactionDecisions
from rocketmq_tw.proxy.proto.messages import (
    Code,
    Encoding,
    EndTransactionRequest,
    ForwardMessageToDeadLetterQueueRequest,
    Message,
    MessageType,
    RecallMessageRequest,
    Resource,
    SystemProperties,
    TransactionResolution,
    TransactionSource,
)
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pop import PopMessageRequestHeader
from tests.support.broker import BrokerInMemory
from tests.support.proxy import BrokersInMemory, FakeClient, FakeClients, answer_of
from tests.support.sending import SendingProxy
from tests.support.transactions import connect, let

COMMIT, ROLLBACK = TransactionResolution.COMMIT, TransactionResolution.ROLLBACK


class LosingBrokers(BrokersInMemory):
    """Loses the connection to its broker when the test says so."""

    _lost: tuple[int, bool] | None = None

    def lose(self, code: int, *, is_done: bool) -> None:
        """Has the next request of a code get no answer; with `is_done` it is carried out."""
        self._lost = code, is_done

    def ask(
        self,
        broker_name: str,
        request: RemotingCommand,
        timeout: float,
        client: IProxyClient | None = None,
    ) -> Deferred[RemotingCommand]:
        lost = self._lost
        if lost is None or lost[0] != request.code:
            return super().ask(broker_name, request, timeout, client)
        self._lost = None
        if lost[1]:
            super().ask(broker_name, request, timeout, client)
        return fail(ConnectionLost(broker_name, "lost"))


class Proxy(SendingProxy):
    """The services before one broker with the topic `T` of one queue."""

    def __init__(self, message_type: str = "MIXED", **fields: Any) -> None:
        self.broker = BrokerInMemory(**fields)
        self.name = self.broker.config.broker_name
        brokers = self.losing = LosingBrokers(self.broker)
        brokers.add_topic("T", {self.name: 1}, message_type=message_type)
        clock = self.broker.clock
        super().__init__(brokers, clock, self.broker.now_ms)
        clients = FakeClients()
        times = BrokerTimes(clock)
        popped = PopClient(brokers, times)
        renewal = Renewal(clock, popped, clients, self.metadata, ProxyConfig())
        claims = Claims(renewal, times)
        self.methods.update(DeadLetters(clock, clients, popped, claims).methods())

    def entries(self, *messages: Message) -> Any:
        """The entries of a response to a send that says OK."""
        response = self.send(*messages)
        assert response.status.code == Code.OK, response
        return response.entries

    def bodies(self, topic: str = "T") -> list[bytes]:
        return [message.body for message in self.broker.consume(topic)]


def message(body: bytes = b"hello", **system: Any) -> Message:
    properties = system.pop("properties", {})
    return Message(
        topic=Resource(name="T"),
        body=body,
        user_properties=properties,
        system_properties=SystemProperties(**({"message_id": "ID"} | system)),
    )


def test_a_message_is_found_as_it_was_sent() -> None:
    proxy = Proxy()
    (entry,) = proxy.entries(
        message(properties={"n": "1"}, tag="a", keys=["k", "l"], message_group="g")
    )
    (found,) = proxy.broker.consume("T")
    assert (found.queue_offset, found.message_id, entry.offset) == (0, "ID", 0)
    assert (found.tags, found.keys) == ("a", ["k", "l"])
    record = proxy.broker.store.message_at(found.physical_offset)
    assert record is not None
    shown = message_of(record)
    assert dict(shown.user_properties) == {"n": "1", "__SHARDINGKEY": "g"}
    assert shown.system_properties.message_type == MessageType.FIFO
    assert shown.system_properties.message_group == "g"
    assert shown.system_properties.born_host == "10.0.0.9"
    assert shown.body == b"hello"


def test_a_batch_is_stored_message_by_message() -> None:
    proxy = Proxy()
    entries = proxy.entries(
        *(message(b"%d" % i, message_id=f"ID-{i}", properties={"n": f"{i}"}) for i in range(3))
    )
    found = proxy.broker.consume("T")
    assert [(each.message_id, each.body) for each in found] == [
        ("ID-0", b"0"),
        ("ID-1", b"1"),
        ("ID-2", b"2"),
    ]
    assert [each.properties["n"] for each in found] == ["0", "1", "2"]
    assert [entry.offset for entry in entries] == [each.queue_offset for each in found]


def test_a_gzip_body_is_read_by_classic_consumers() -> None:
    proxy = Proxy()
    body = b"hello " * 10_000
    proxy.entries(message(gzip.compress(body), body_encoding=Encoding.GZIP))
    assert proxy.bodies() == [body]


def test_a_topic_says_what_it_takes() -> None:
    proxy = Proxy("FIFO")
    proxy.entries(message(message_group="g"))
    response = proxy.send(message())
    assert response.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert len(proxy.bodies()) == 1


def end(proxy: Proxy, transaction_id: str, resolution: int, **fields: Any) -> int:
    response = proxy.call(
        "EndTransaction",
        EndTransactionRequest(
            topic=Resource(name="T"),
            message_id="ID",
            transaction_id=transaction_id,
            resolution=resolution,
            **fields,
        ),
    )
    code: int = response.status.code
    return code


@pytest.mark.parametrize(("resolution", "count"), [(COMMIT, 1), (ROLLBACK, 0)])
def test_a_transaction_is_decided(resolution: int, count: int) -> None:
    proxy = Proxy()
    (entry,) = proxy.entries(message(message_type=MessageType.TRANSACTION))
    let(proxy.broker, 1)
    assert proxy.bodies() == []
    assert end(proxy, entry.transaction_id, resolution) == Code.OK
    let(proxy.broker, 1)
    assert proxy.bodies() == [b"hello"] * count
    # The client did not hear that, and says it again.
    assert end(proxy, entry.transaction_id, resolution) == Code.OK
    let(proxy.broker, 1)
    assert proxy.bodies() == [b"hello"] * count


@pytest.mark.parametrize(("resolution", "count"), [(COMMIT, 1), (ROLLBACK, 0)])
def test_an_orphan_is_asked_about_and_decided(resolution: int, count: int) -> None:
    proxy, client = Proxy(), FakeClient()
    proxy.entries(message(message_type=MessageType.TRANSACTION, properties={"n": "1"}))
    peer = connect(proxy.broker, group="T")
    let(proxy.broker, 90)
    (question, *_) = [
        each for each in peer.oneways if each.code == RequestCode.CHECK_TRANSACTION_STATE
    ]
    answer_of(proxy.questions.recover(client, question), proxy.broker.clock)
    command = client.told[0].recover_orphaned_transaction_command
    assert command.message.body == b"hello"
    # Stock's proxy shows the broker's as well.
    assert dict(command.message.user_properties) == {
        "n": "1",
        "__transactionId__": "ID",
        "TRANSACTION_CHECK_TIMES": "1",
    }
    source = TransactionSource.SOURCE_SERVER_CHECK
    assert end(proxy, command.transaction_id, resolution, source=source) == Code.OK
    let(proxy.broker, 1)
    assert proxy.bodies() == [b"hello"] * count


@pytest.mark.parametrize(("resolution", "count"), [(COMMIT, 1), (ROLLBACK, 0)])
def test_a_late_decision_at_another_proxy_counts_once(resolution: int, count: int) -> None:
    proxy = Proxy()
    (entry,) = proxy.entries(message(message_type=MessageType.TRANSACTION))
    peer = connect(proxy.broker, group="T")
    # The broker asks meanwhile, for which it stores the half message anew.
    let(proxy.broker, 90)
    assert any(each.code == RequestCode.CHECK_TRANSACTION_STATE for each in peer.oneways)
    other = TransactionDecisions(proxy.clock, proxy.brokers, HalfPlaces(proxy.clock, 30))
    proxy.methods.update(other.methods())
    assert end(proxy, entry.transaction_id, resolution) == Code.OK
    let(proxy.broker, 1)
    assert proxy.bodies() == [b"hello"] * count
    asked = len(peer.oneways)
    let(proxy.broker, 300)
    assert (proxy.bodies(), len(peer.oneways)) == ([b"hello"] * count, asked)


def test_a_timed_message_comes_at_its_time_unless_it_is_recalled() -> None:
    proxy = Proxy(broker={"recall_message_enable": True})
    due = timestamp_of(proxy.broker.now_ms() + 5000)
    proxy.entries(message(b"comes", delivery_timestamp=due, message_id="A"))
    (entry,) = proxy.entries(message(b"recalled", delivery_timestamp=due, message_id="B"))
    response = proxy.call(
        "RecallMessage",
        RecallMessageRequest(topic=Resource(name="T"), recall_handle=entry.recall_handle),
    )
    assert (response.status.code, response.message_id) == (Code.OK, "B")
    let(proxy.broker, 3)
    assert proxy.bodies() == []
    let(proxy.broker, 4)
    assert proxy.bodies() == [b"comes"]


def popped(proxy: Proxy) -> list[PoppedMessage]:
    """What group G pops, which is hidden for 10 s."""
    header = PopMessageRequestHeader(
        consumer_group="G",
        topic="T",
        queue_id=-1,
        max_msg_nums=1,
        invisible_time=10_000,
        poll_time=0,
        born_time=0,
        init_mode=0,
    )
    poll = Poll(proxy.losing, BrokerTimes(proxy.broker.clock), proxy.name, header)
    return cast(list[PoppedMessage], answer_of(poll.messages(), proxy.broker.clock))


def forward(proxy: Proxy, received: PoppedMessage) -> int:
    """The code of the response to a call that makes a message a dead letter."""
    request = ForwardMessageToDeadLetterQueueRequest(
        topic=Resource(name="T"),
        group=Resource(name="G"),
        receipt_handle=str(received.handle),
        message_id="ID",
    )
    return int(proxy.call("ForwardMessageToDeadLetterQueue", request).status.code)


def test_a_received_message_becomes_a_dead_letter() -> None:
    proxy = Proxy()
    proxy.broker.groups.update(SubscriptionGroupConfig(group_name="G"))
    proxy.entries(message())
    let(proxy.broker, 1)
    (received,) = popped(proxy)
    assert forward(proxy, received) == Code.OK
    let(proxy.broker, 30)
    dead = proxy.broker.consume("%DLQ%G")
    assert [each.body for each in dead] == [b"hello"]
    record = proxy.broker.store.message_at(dead[0].physical_offset)
    assert record is not None
    origin = message_of(record).system_properties.dead_letter_queue
    assert (origin.topic, origin.message_id) == ("T", "ID")
    # Nobody gets it again.
    assert popped(proxy) == []


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_dead_letter_whose_answer_was_lost_is_not_made_twice(is_stored: bool) -> None:
    proxy = Proxy()
    proxy.broker.groups.update(SubscriptionGroupConfig(group_name="G"))
    proxy.entries(message())
    let(proxy.broker, 1)
    for deliveries in (1, 2):
        (received,) = popped(proxy)
        proxy.losing.lose(RequestCode.CONSUMER_SEND_MSG_BACK, is_done=is_stored)
        assert forward(proxy, received) == Code.INTERNAL_SERVER_ERROR
        let(proxy.broker, 1)
        assert forward(proxy, received) == Code.OK
        assert len(proxy.broker.consume("%DLQ%G")) == deliveries
        # It is consumed once more, as what tools take from a dead-letter queue.
        proxy.entries(message())
        let(proxy.broker, 1)
