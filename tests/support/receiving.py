"""A proxy's services of consumers before the real broker in memory.

world = ReceivingWorld()
world.send(b"one")
(message,) = world.receive().messages
assert world.ack(message).status.code == Code.OK
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, maybeDeferred

from rocketmq_tw.broker.filters.compile_budget import CompileBudget
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import ConnectionLost, RequestTimeout
from rocketmq_tw.proxy.brokers import IBrokers, IProxyClient
from rocketmq_tw.proxy.clients import ProxyClient, ProxyClients
from rocketmq_tw.proxy.local.brokers import LocalBrokers
from rocketmq_tw.proxy.messaging.acknowledging import Acknowledging
from rocketmq_tw.proxy.messaging.broker_times import BrokerTimes
from rocketmq_tw.proxy.messaging.claims import Claims
from rocketmq_tw.proxy.messaging.dead_letters import DeadLetters
from rocketmq_tw.proxy.messaging.delivery import Delivery
from rocketmq_tw.proxy.messaging.expressions import Expressions
from rocketmq_tw.proxy.messaging.invisible import InvisibleDurations
from rocketmq_tw.proxy.messaging.offsets import OffsetCalls
from rocketmq_tw.proxy.messaging.polls import Polls
from rocketmq_tw.proxy.messaging.popped import PopClient
from rocketmq_tw.proxy.messaging.pulling import Pulling
from rocketmq_tw.proxy.messaging.receive_requests import ReceiveRequests
from rocketmq_tw.proxy.messaging.receiving import Receiving
from rocketmq_tw.proxy.messaging.renewal import Renewal
from rocketmq_tw.proxy.messaging.unpacking import Unpacking
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.runtime.standstills import Standstills
from rocketmq_tw.runtime.threads import InThread, at_once
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer
from tests.support.proxy import Asked, FakeCall, PlayedBrokers

SERVICE = "/apache.rocketmq.v2.MessagingService/"


class RealBroker(PlayedBrokers):
    """A cluster of one real broker."""

    def __init__(self, broker: BrokerInMemory) -> None:
        super().__init__()
        self._broker = broker
        #: Codes of requests that are carried out, and whose answers do not come.
        self.unheard: set[int] = set()
        #: Codes of requests that are carried out while the connection is lost.
        self.lost: set[int] = set()
        #: Fields of requests that it does not know, as stock's.
        self.unknown_fields: set[str] = set()
        #: Code of requests that are carried out at once -> seconds until the answer comes.
        self.late: dict[int, float] = {}

    def answers_itself(self, code: int) -> None:
        """Has the broker answer a request for which the test had an answer."""
        self._answers.pop(code, None)

    def ask(
        self,
        broker_name: str,
        request: RemotingCommand,
        timeout: float,
        client: IProxyClient | None = None,
    ) -> Deferred[RemotingCommand]:
        scripted = self._answers.get(request.code)
        if broker_name in self.gone or scripted is not None:
            return super().ask(broker_name, request, timeout, client)
        self.asked.append(Asked(broker_name, request, timeout, client))
        later: Deferred[RemotingCommand] = Deferred()
        too_late = RequestTimeout(f"{broker_name}:10911", request.code, timeout)

        def end() -> None:
            if not later.called:
                later.errback(too_late)

        self._broker.clock.callLater(timeout, end)
        for name in self.unknown_fields:
            request.ext_fields.pop(name, None)

        comes, seconds = request.code not in self.unheard, self.late.get(request.code, 0)

        def give(response: RemotingCommand) -> None:
            if seconds:
                self._broker.clock.callLater(seconds, come, response)
            else:
                come(response)

        def come(response: RemotingCommand) -> None:
            if comes and not later.called:
                later.callback(response)

        class Peer(FakePeer):
            def reply(self, response: RemotingCommand) -> None:
                super().reply(response)
                give(response)

        answer = self._broker.request(request, Peer())
        if request.code in self.lost:
            later.errback(ConnectionLost(f"{broker_name}:10911", "it was cut"))
        elif answer is not None:
            give(answer)
        return later


def _hand_on(
    client: ProxyClient, request: RemotingCommand, timeout: float
) -> Deferred[RemotingCommand]:
    raise AssertionError(f"nobody asks {client.client_id}: {request!r}")


class Received(NamedTuple):
    """What a client has of a receive."""

    status: Any
    messages: list[Any]

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


class ReceivingWorld:
    """The consumers of group `G`, and the topic `Topic`."""

    def __init__(
        self,
        *,
        queues: int = 1,
        is_fifo: bool = False,
        retry_max_times: int = 16,
        in_thread: InThread = at_once,
        broker: dict[str, Any] | None = None,
        clock_off: int = 0,
        is_local: bool = False,
        **config: Any,
    ) -> None:
        """`clock_off`: seconds that the proxy's time of day is ahead of the broker's. `is_local`:
        the proxy is in the broker's process, and `RealBroker` stands for all other brokers."""
        self._clock_off_ms = clock_off * 1000
        self.broker = BrokerInMemory(broker=broker)
        self.clock = self.broker.clock
        self.broker.add_topic("Topic", read_queue_nums=queues, write_queue_nums=queues)
        self.broker.groups.update(
            SubscriptionGroupConfig(
                group_name="G", consume_message_orderly=is_fifo, retry_max_times=retry_max_times
            )
        )
        for queue_id in range(queues):
            self.broker.offsets.commit("G", "Topic", queue_id, 0, "test")
        self.brokers = RealBroker(self.broker)
        self.brokers.add_topic("Topic", {"broker-a": queues})
        #: What the proxy asks.
        self.cluster: IBrokers = self.brokers
        if is_local:
            self.cluster = LocalBrokers(self.clock, self.broker.broker, self.brokers)
        self.config = ProxyConfig(**config)
        self._in_thread = in_thread
        self._begin()

    def another_proxy(self) -> ReceivingWorld:
        """The world of a proxy beside this one, to which the client is connected as well."""
        other = copy(self)
        other._begin()
        return other

    def _begin(self) -> None:
        """Makes a proxy, and connects the client to it."""
        self.clients = ProxyClients(self.clock.seconds, _hand_on, lambda: 120.0)
        settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER, subscription=pb.Subscription())
        self.client = self.clients.settle("client", FakeCall(), settings, "G", ["Topic"])
        metadata = Metadata(self.clock, self.cluster)
        #: Tells nothing until it is started.
        self.standstills = Standstills(self.clock)
        times = BrokerTimes(self.clock, self.standstills.since)
        popped = PopClient(self.cluster, times)

        def now_ms() -> int:
            return self.broker.now_ms() + self._clock_off_ms

        self.renewal = Renewal(self.clock, popped, self.clients, metadata, self.config)
        claims = Claims(self.renewal, times)
        unpacking = Unpacking(self.config, self._in_thread)
        expressions = Expressions(CompileBudget(self.clock))
        receives = ReceiveRequests(
            self.clock, self.renewal, self.clients, metadata, expressions, self.config
        )
        delivery = Delivery(
            self.clock, self.clients, popped, self.renewal, unpacking, times, now_ms
        )
        polls = Polls(
            self.clock, self.cluster, popped, times, self.clients, self.config, delivery.bring_back
        )
        self.methods: dict[str, Any] = {
            **Receiving(self.clock, self.cluster, receives, polls, delivery).methods(),
            **Acknowledging(self.clock, popped, claims, self.clients, self.config).methods(),
            **InvisibleDurations(claims, self.config).methods(),
            **DeadLetters(self.clock, self.clients, popped, claims).methods(),
            **Pulling(
                self.cluster, self.clients, unpacking, expressions, self.clock, self.config
            ).methods(),
            **OffsetCalls(self.cluster, self.clients).methods(),
        }

    def send(self, body: bytes, tag: str = "", **fields: Any) -> None:
        properties = {"UNIQ_KEY": f"ID-{body.decode()}", **fields.pop("properties", {})}
        if tag:
            properties["TAGS"] = tag
        answer = self.broker.send(body, properties=properties, **fields)
        assert answer is not None and answer.code == 0, answer

    def begin(self, call: FakeCall | None = None, **fields: Any) -> tuple[FakeCall, Deferred[None]]:
        """A receive that may take its time."""
        call = call or self.call()
        request: dict[str, Any] = {
            "group": pb.Resource(name="G"),
            "message_queue": pb.MessageQueue(topic=pb.Resource(name="Topic")),
            "filter_expression": pb.FilterExpression(type=pb.TAG, expression="*"),
            "batch_size": 32,
            "invisible_duration": {"seconds": 30},
        }
        message = pb.ReceiveMessageRequest(**request | fields)
        handler = self.methods[SERVICE + "ReceiveMessage"].handler
        return call, Deferred.fromCoroutine(handler(message, call))

    def call(self, client_id: str = "client", seconds: float | None = 30) -> FakeCall:
        """A call that ends in so many seconds."""
        deadline = None if seconds is None else self.clock.seconds() + seconds
        return FakeCall(client_id, deadline=deadline)

    def receive(self, call: FakeCall | None = None, **fields: Any) -> Received:
        """What a receive brings, however long it takes."""
        call, done = self.begin(call, **fields)
        self.until(done)
        return received(call)

    def until(self, done: Deferred[Any]) -> Any:
        """What a Deferred fires with, while time passes."""
        found: list[Any] = []
        done.addBoth(found.append)
        for _ in range(200):
            if found:
                return found[0]
            self.clock.advance(0.25)
        raise AssertionError("it does not end")

    def ask(self, method: str, request: Any, call: FakeCall | None = None) -> Any:
        """The response of a unary method."""
        handler = self.methods[SERVICE + method].handler
        return self.until(maybeDeferred(handler, request, call or self.call()))

    def ack(
        self, *messages: Any, call: FakeCall | None = None, group: str = "G", topic: str = "Topic"
    ) -> Any:
        """The response to the acknowledgement of messages, or of handles."""
        entries = [
            pb.AckMessageEntry(message_id="ID", receipt_handle=handle)
            if isinstance(handle, str)
            else pb.AckMessageEntry(
                message_id=handle.system_properties.message_id,
                receipt_handle=handle.system_properties.receipt_handle,
            )
            for handle in messages
        ]
        request = pb.AckMessageRequest(
            group=pb.Resource(name=group), topic=pb.Resource(name=topic), entries=entries
        )
        return self.ask("AckMessage", request, call)

    def change(
        self, handle: str, seconds: int, group: str = "G", call: FakeCall | None = None
    ) -> Any:
        """The response to the change of an invisible duration."""
        request = pb.ChangeInvisibleDurationRequest(
            group=pb.Resource(name=group),
            topic=pb.Resource(name="Topic"),
            receipt_handle=handle,
            invisible_duration={"seconds": seconds},
        )
        return self.ask("ChangeInvisibleDuration", request, call)

    def forward(self, message: Any) -> Any:
        """The response of what makes a message a dead letter."""
        request = pb.ForwardMessageToDeadLetterQueueRequest(
            group=pb.Resource(name="G"),
            topic=pb.Resource(name="Topic"),
            receipt_handle=message.system_properties.receipt_handle,
            message_id=message.system_properties.message_id,
        )
        return self.ask("ForwardMessageToDeadLetterQueue", request)

    def pass_time(self, seconds: float) -> None:
        """Lets the proxy and the broker work for so long."""
        self.clock.pump([0.25] * round(seconds * 4))


def received(call: FakeCall) -> Received:
    """What a call has brought by now: a status first, the time of delivery last."""
    kinds = [response.WhichOneof("content") for response in call.sent]
    assert kinds[0] == "status" and kinds[-1] == "delivery_timestamp", kinds
    assert set(kinds[1:-1]) <= {"message"}, kinds
    return Received(call.sent[0].status, [response.message for response in call.sent[1:-1]])
