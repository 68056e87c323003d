"""Registrations of brokers with many topics, sent to a name server in memory, and their answers."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.wire.bodies.registration import RegisterBrokerBody, encode_registration
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.network import FakePeer

MANY = 20_000


def registration(
    *, name: str = "broker-a", port: int = 10911, perm: int = 6, topics: int = MANY, **options: Any
) -> RemotingCommand:
    table = TopicConfigTable(
        topic_config_table={
            f"T{n}": TopicConfig(topic_name=f"T{n}", perm=perm) for n in range(topics)
        },
        topic_queue_mapping_info_map={},
    )
    table.data_version.counter = perm
    compressed = options.get("compressed", False)
    body = RegisterBrokerBody(topic_config_serialize_wrapper=table)
    fields = {
        "clusterName": "C",
        "brokerName": name,
        "brokerId": "0",
        "brokerAddr": f"127.0.0.1:{port}",
        "haServerAddr": "127.0.0.1:10912",
        "compressed": str(compressed).lower(),
    }
    return RemotingCommand(
        103, ext_fields=fields, body=encode_registration(body, compressed=compressed)
    )


def send(namesrv: Any, request: RemotingCommand, peer: FakePeer | None = None) -> list[Any]:
    """Where the answer, or why there is none, will stand."""
    answered: list[Any] = []
    answer = namesrv.server.handlers[request.code](request, peer or FakePeer())
    if isinstance(answer, Deferred):
        answer.addBoth(answered.append)
    else:
        answered.append(answer)
    return answered


def topics_of(namesrv: Any, name: str = "broker-a") -> int:
    return len(namesrv.server.table.queues.of_broker(name))
