"""The real name server on files in memory, asked through its handlers."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.registration import RegisterBrokerBody
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import (
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
)
from tests.support.network import FakePeer


class NameServerInMemory:
    """`handlers` is what it answers; `asked` has the topics whose routes were asked for."""

    def __init__(self, clock: Any) -> None:
        config = NamesrvConfig(kv_config_path="/kv.json", config_store_path="/ns.properties")
        self.server = NameServer(clock, MemoryFiles(), config)
        self.asked: list[str] = []
        self.handlers: dict[int, Handler] = dict(self.server.handlers)
        self._route = self.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC]
        self.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self.route

    def route(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand] | None:
        """The handler of 105."""
        self.asked.append(request.header(GetRouteInfoRequestHeader).topic)
        return self._route(request, peer)

    def register(self, address: str, name: str, topic: str, queues: int, perm: int = 6) -> None:
        """A broker at `address`, which need not be there, says that it has the topic."""
        header = RegisterBrokerRequestHeader(
            broker_name=name,
            broker_addr=address,
            cluster_name="DefaultCluster",
            ha_server_addr=address,
            broker_id=0,
        )
        config = TopicConfig(
            topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )
        # With nothing but the topic it would tell of a change only.
        own = TopicConfig(topic_name=name)
        table = TopicConfigTable(topic_config_table={name: own, topic: config})
        body = encode_body(RegisterBrokerBody(topic_config_serialize_wrapper=table))
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)
        answer = self.handlers[RequestCode.REGISTER_BROKER](request, FakePeer())
        assert isinstance(answer, RemotingCommand) and answer.code == 0, answer
