"""Two brokers and a name server in memory, with a static topic that moves between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.bodies.topics import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.namesrv import GetRouteInfoRequestHeader
from rocketmq_tw.wire.headers.topics import GetTopicConfigRequestHeader
from tests.support.broker import BrokerInMemory
from tests.support.name_server import NameServerInMemory
from tests.support.network import FakePeer, MemoryNetwork
from tests.support.remoting import topic_header

NAME_SERVER = "10.0.0.9:9876"
TOPIC = "Static"


def item(gen: int, broker: str, queue_id: int = 0, logic: int = 0) -> LogicQueueMappingItem:
    return LogicQueueMappingItem(gen=gen, queue_id=queue_id, bname=broker, logic_offset=logic)


def hosting(
    broker: str,
    queues: dict[int, list[LogicQueueMappingItem]],
    *,
    epoch: int = 1_000,
    physical: int = 2,
    total: int = 2,
    force: bool = False,
    **fields: Any,
) -> RemotingCommand:
    """What an administrator says to one broker of the static topic."""
    header = topic_header(TOPIC, physical, force=force)
    said: dict[str, Any] = {
        "topic": TOPIC,
        "total_queues": total,
        "bname": broker,
        "epoch": epoch,
    }
    detail = TopicQueueMappingDetail(**said | fields, hosted_queues=queues)
    code = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC
    return RemotingCommand.request(code, header, encode_body(detail))


def static_topic(
    broker: BrokerInMemory, queues: Sequence[int], total: int = 4
) -> RemotingCommand | None:
    """The broker gets these logic queues of the topic, in as many physical ones."""
    name = broker.config.broker_name
    detail = TopicQueueMappingDetail(
        topic=TOPIC,
        total_queues=total,
        bname=name,
        epoch=1_000,
        hosted_queues={logic: [item(0, name, at)] for at, logic in enumerate(queues)},
    )
    return broker.request(
        RemotingCommand.request(
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
            topic_header(TOPIC, len(queues), force=False),
            encode_body(detail),
        )
    )


class StaticCluster:
    """`a` and `b` are brokers of these names that know each other by one name server."""

    def __init__(self) -> None:
        self.clock = MemoryReactorClock()
        self.network = MemoryNetwork(self.clock)
        self.names = NameServerInMemory(self.clock)
        self.network.serve(NAME_SERVER, self.names.handlers)
        self.brokers = {
            name: BrokerInMemory(
                clock=self.clock,
                network=self.network,
                address=f"10.0.0.{number}:10911",
                broker={"broker_name": name, "namesrv_addr": NAME_SERVER},
            )
            for number, name in enumerate("ab", 1)
        }
        self.a, self.b = self.brokers.values()
        self.settle()

    def settle(self) -> None:
        for _ in range(60):
            self.clock.advance(0.01)

    def ask(
        self, broker: BrokerInMemory, request: RemotingCommand, peer: FakePeer | None = None
    ) -> RemotingCommand | None:
        """The answer, however many brokers are asked for it; None where it is held."""
        peer = peer or FakePeer()
        try:
            result = broker.handlers[request.code](request, peer)
        except RequestError as error:
            return request.response(error.code, error.remark)
        answers: list[Any] = []
        if isinstance(result, Deferred):
            result.addBoth(answers.append)
        elif result is not None:
            return result
        self.settle()
        if answers:
            refusal = getattr(answers[0], "value", None)
            if isinstance(refusal, RequestError):
                return request.response(refusal.code, refusal.remark)
            assert isinstance(answers[0], RemotingCommand), answers[0]
            return answers[0]
        return next((each for each in peer.replies if each.opaque == request.opaque), None)

    def call(self, broker: BrokerInMemory, code: RequestCode, header: Header) -> RemotingCommand:
        answer = self.ask(broker, RemotingCommand.request(code, header))
        assert answer is not None
        return answer

    def host(
        self,
        broker: str,
        queues: dict[int, list[LogicQueueMappingItem]],
        **fields: Any,
    ) -> RemotingCommand:
        """Has one broker host the static topic as `hosting` says."""
        answer = self.ask(self.brokers[broker], hosting(broker, queues, **fields))
        assert answer is not None
        return answer

    def make(self) -> None:
        """Queue 0 on `a` and queue 1 on `b`."""
        for number, name in enumerate(self.brokers):
            answer = self.host(name, {number: [item(0, name)]}, physical=1)
            assert answer.code == ResponseCode.SUCCESS, answer

    def move(self, logic: int = 10_000) -> None:
        """Queue 0 goes from `a` to physical queue 1 of `b`, in stock's steps."""
        undecided = [item(0, "a"), item(1, "b", 1, -1)]
        decided = [item(0, "a"), item(1, "b", 1, logic)]
        for broker, items in (("b", undecided), ("a", undecided), ("b", decided), ("a", decided)):
            queues = {0: items} | ({1: [item(0, "b")]} if broker == "b" else {})
            answer = self.host(broker, queues, epoch=2_000, physical=2)
            assert answer.code == ResponseCode.SUCCESS, answer

    def send(self, broker: BrokerInMemory, body: bytes, queue_id: int = 0) -> RemotingCommand:
        request = broker.send_request(body, topic=TOPIC, queue_id=queue_id)
        answer = self.ask(broker, request)
        assert answer is not None
        return answer

    def detail(self, broker: BrokerInMemory) -> TopicQueueMappingDetail | None:
        """How the broker says that it hosts the topic."""
        header = GetTopicConfigRequestHeader(topic=TOPIC, lo=True)
        answer = self.call(broker, RequestCode.GET_TOPIC_CONFIG, header)
        return decode_body(TopicConfigAndQueueMapping, answer.body).mapping_detail

    def led(self) -> dict[str, dict[int, int]]:
        """Broker to the logic queues that it leads and their physical ones, by the name server."""
        request = RemotingCommand.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=TOPIC)
        )
        answer = self.names.route(request, FakePeer())
        assert isinstance(answer, RemotingCommand)
        mappings = decode_body(TopicRouteData, answer.body).topic_queue_mapping_by_broker or {}
        return {name: info.curr_id_map for name, info in mappings.items()}
