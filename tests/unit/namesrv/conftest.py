"""A name server in memory, and who asks it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import Threads, fired
from tests.support.network import FakePeer


class Asked:
    """A name server whose handlers are called directly, and a peer for each broker."""

    def __init__(self, **config: Any) -> None:
        self.clock = Clock()
        self.files = MemoryFiles()
        self.threads = Threads()
        self.config = NamesrvConfig(
            kv_config_path="/ns/kv.json", config_store_path="/ns/ns.properties", **config
        )
        #: Address and fields of the requests that the name server sends to brokers.
        self.sent: list[tuple[str, dict[str, str]]] = []
        self.server = NameServer(
            self.clock,
            self.files,
            self.config,
            client=self,  # type: ignore[arg-type]
            in_thread=self.threads,
        )

    def send_oneway(self, address: str, command: RemotingCommand) -> Deferred[None]:
        """Takes what the name server sends to a broker."""
        assert command.code == RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE and command.is_oneway
        self.sent.append((address, dict(command.ext_fields)))
        return succeed(None)

    def ask(
        self,
        code: int,
        fields: dict[str, Any],
        body: bytes = b"",
        *,
        peer: FakePeer | None = None,
        version: int = 479,
    ) -> RemotingCommand:
        texts = {key: str(value) for key, value in fields.items()}
        command = RemotingCommand(code, ext_fields=texts, body=body, version=version)
        answer = self.server.handlers[code](command, peer or FakePeer())
        if isinstance(answer, Deferred):
            answer = fired(answer)
        assert isinstance(answer, RemotingCommand)
        return answer

    def register(
        self,
        name: str = "broker-a",
        broker_id: int = 0,
        port: int = 10911,
        *,
        topics: tuple[str, ...] = ("T1", "T2"),
        state_version: int = 0,
        peer: FakePeer | None = None,
        **fields: Any,
    ) -> RemotingCommand:
        header = {
            "clusterName": "C",
            "brokerName": name,
            "brokerId": broker_id,
            "brokerAddr": f"127.0.0.1:{port}",
            "haServerAddr": f"127.0.0.1:{port + 1}",
        }
        table = {topic: {"topicName": topic} for topic in topics}
        version = {"stateVersion": state_version, "timestamp": 1, "counter": 1}
        body = {"topicConfigSerializeWrapper": {"topicConfigTable": table, "dataVersion": version}}
        return self.ask(103, header | fields, json.dumps(body).encode(), peer=peer)

    def route(self, topic: str) -> dict[str, Any] | None:
        answer = self.ask(105, {"topic": topic})
        return json.loads(answer.body) if answer.code == 0 else None

    def addresses(self, topic: str) -> dict[str, dict[str, str]]:
        """Broker name to id to address; empty where the topic has no route."""
        route = self.route(topic) or {"brokerDatas": []}
        return {broker["brokerName"]: broker["brokerAddrs"] for broker in route["brokerDatas"]}


@pytest.fixture
def namesrv() -> Asked:
    return Asked()


@pytest.fixture
def make_namesrv() -> type[Asked]:
    return Asked
