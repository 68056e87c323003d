"""Behaviours that fill tables: topics, groups, offsets, locks, and a name server's routes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import HeartbeatData, SubscriptionData
from rocketmq_tw.wire.bodies.queues import LockBatchRequestBody, MessageQueue
from rocketmq_tw.wire.bodies.registration import RegisterBrokerBody, encode_registration
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.heartbeats import push_consumer
from tests.support.load import encode_batch, send_request
from tools.hostile.attack import Attack, frame

#: Groups of a heartbeat, and queues of a request for locks.
_GROUPS = 1000
_LOCKS = 5000
#: What a run adds at most; tables may be far larger, which takes longer than a run.
_MOST_HEARTBEATS = 30
_MOST_TOPICS = 30_000
_MOST_OFFSETS = 100_000
_MOST_LOCKS = 20
_MOST_REGISTRATIONS = 40
_REGISTERED = 5000
_TINY = 32_000


def new_groups(attack: Attack) -> None:
    """Heartbeats of a thousand new groups each."""

    def heartbeats() -> Iterator[RemotingCommand]:
        for number in range(_MOST_HEARTBEATS):
            body = HeartbeatData(client_id=f"hostile-{number}")
            for each in range(_GROUPS):
                wanted = SubscriptionData(topic="honest", sub_string="*", sub_version=1)
                body.consumer_data_set.append(push_consumer(f"g-{number}-{each}", wanted))
            yield RemotingCommand.request(RequestCode.HEART_BEAT, body=encode_body(body))

    attack.ask_each(attack.target.broker, heartbeats(), window=4)


def new_topics(attack: Attack) -> None:
    """Messages to ever new topics."""
    sends = (send_request(f"topic-{number}", 0, b"x") for number in range(_MOST_TOPICS))
    attack.ask_each(attack.target.broker, sends, window=64)


def new_offsets(attack: Attack) -> None:
    """Offsets of ever new groups."""

    def commits() -> Iterator[RemotingCommand]:
        for number in range(_MOST_OFFSETS):
            request = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET)
            request.ext_fields = {
                "consumerGroup": f"o-{number}",
                "topic": "honest",
                "queueId": "0",
                "commitOffset": "1",
            }
            yield request

    attack.ask_each(attack.target.broker, commits(), window=64)


def many_locks(attack: Attack) -> None:
    """Requests for locks of thousands of queues that nobody has."""

    def locks() -> Iterator[RemotingCommand]:
        for number in range(_MOST_LOCKS):
            body = LockBatchRequestBody(consumer_group=f"l-{number}", client_id="hostile")
            body.mq_set = [
                MessageQueue(topic=f"t-{each}", broker_name="hostile", queue_id=each)
                for each in range(_LOCKS)
            ]
            yield RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=encode_body(body))

    attack.ask_each(attack.target.broker, locks(), window=2)


def tiny_messages(attack: Attack) -> None:
    """Batches of very many messages without a byte, which the size of a request allows."""
    batch = encode_batch([b""] * _TINY)
    sends = (send_request("tiny", number % 4, batch, batch=True) for number in range(30))
    attack.ask_each(attack.target.broker, sends, window=2)


def registrations(attack: Attack) -> None:
    """Brokers that register thousands of new topics with the name server."""

    def requests() -> Iterator[RemotingCommand]:
        for number in range(_MOST_REGISTRATIONS):
            body = RegisterBrokerBody()
            table = body.topic_config_serialize_wrapper.topic_config_table
            for each in range(_REGISTERED):
                name = f"r-{number}-{each}"
                table[name] = TopicConfig(topic_name=name)
            yield _registration(number, encode_registration(body, compressed=False), "false")

    attack.ask_each(attack.target.name_server, requests(), window=2)


def inflating_registrations(attack: Attack) -> None:
    """Registrations of a few KB that inflate to as much as one may have, and more."""
    bodies = [zlib.compress(bytes(size << 20), 9) for size in (31, 200)]

    def request() -> bytes:
        command = _registration(attack.done % 8, bodies[attack.done % 2], "true")
        return frame(command.code, command.ext_fields, command.body)

    attack.flood(attack.target.name_server, 4, request)


def _registration(number: int, body: bytes, compressed: str) -> RemotingCommand:
    request = RemotingCommand.request(RequestCode.REGISTER_BROKER, body=body)
    request.ext_fields = {
        "brokerName": f"hostile-{number}",
        "brokerAddr": f"127.0.0.1:{number + 1}",
        "clusterName": "HostileCluster",
        "haServerAddr": "127.0.0.1:1",
        "brokerId": "0",
        "compressed": compressed,
        "bodyCrc32": "0",
    }
    return request
