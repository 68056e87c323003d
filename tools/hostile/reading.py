"""Behaviours of those who ask: held pulls, readers that never read, dear questions."""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import SubscriptionData
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.heartbeats import heartbeat_of, push_consumer
from tests.support.load import encode_batch, send_request
from tests.support.remoting import Connection
from tools.hostile.attack import Attack, frame

_MIB = 1 << 20
#: The topic whose messages share one key, and that key.
_SHARED = "shared"
_BATCH = 1000
_SUSPEND, _SUBSCRIPTION = 2, 4
_WHOLE_TABLES = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.GET_ALL_PRODUCER_INFO,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.CLEAN_UNUSED_TOPIC,
)


def pull(
    topic: str, *, queue: int = 0, offset: int = 0, suspend: int = 0, expression: str = "*"
) -> dict[str, str]:
    """The fields of a pull that is held for `suspend` milliseconds, where there is nothing."""
    return {
        "consumerGroup": "hostile-readers",
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": str(_SUBSCRIPTION | (_SUSPEND if suspend else 0)),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend),
        "subscription": expression,
        "subVersion": "0",
        "expressionType": "TAG",
    }


def held_bodies(attack: Attack) -> None:
    """Pulls with bodies of 4 MiB that are held for ever."""
    _make_topic(attack, "empty")
    data = frame(
        RequestCode.PULL_MESSAGE, pull("empty", queue=3, suspend=1 << 40), b"x" * (4 * _MIB)
    )
    attack.flood(attack.target.broker, 4, lambda: data)


def held_opaques(attack: Attack) -> None:
    """Held pulls of 16 KiB of fields that all have one opaque."""
    _make_topic(attack, "empty")
    fields = pull("empty", queue=3, suspend=1 << 40) | {"more": "x" * 16384}
    data = frame(RequestCode.PULL_MESSAGE, fields, opaque=7) * 16
    attack.flood(attack.target.broker, 4, lambda: data)


def never_reading(attack: Attack) -> None:
    """200 connections that ask for messages and take no answer."""
    bodies = [b"x" * 8192] * 32
    with Connection(attack.target.broker) as connection:
        for _ in range(4):
            connection.request(send_request("hoard", 0, encode_batch(bodies), batch=True))
    crowd = attack.crowd(attack.target.broker, 200, receive_buffer=4096)
    data = frame(RequestCode.PULL_MESSAGE, pull("hoard")) * 64
    while attack.going:
        for each in list(crowd):
            if not attack.going:
                return
            if not attack.push(each, data):
                # It is not read from any more: it stays as it is.
                crowd.remove(each)
        if not crowd:
            attack.hold()


def shared_key(attack: Attack) -> None:
    """Queries for a key that very many messages have, in a time before all of them."""
    batch = encode_batch([b"x"] * _BATCH, b"KEYS\1same\2")
    sends = (send_request(_SHARED, 0, batch, batch=True) for _ in range(150))
    attack.ask_each(attack.target.broker, sends, window=4)
    query = RemotingCommand.request(RequestCode.QUERY_MESSAGE)
    query.ext_fields = {
        "topic": _SHARED,
        "key": "same",
        "maxNum": "64",
        "beginTimestamp": "0",
        "endTimestamp": "1000000",
    }
    attack.ask_each(attack.target.broker, _again(query))


def many_tags(attack: Attack) -> None:
    """Pulls with a new expression of 50,000 tags each; every other one is held for ever."""
    _make_topic(attack, "empty")
    tags = "||".join(f"t{number:05}" for number in range(50_000))

    def request() -> bytes:
        held = attack.done % 2 * (1 << 40)
        expression = f"{attack.dice.getrandbits(64):x}||{tags}"
        fields = pull("empty", queue=3, suspend=held, expression=expression)
        return frame(RequestCode.PULL_MESSAGE, fields)

    attack.flood(attack.target.broker, 4, request)


def subscribed_tags(attack: Attack) -> None:
    """Held pulls of a group whose subscription has 100,000 tags, which its heartbeat brought."""
    _make_topic(attack, "empty")
    wanted = SubscriptionData(topic="empty", sub_string="many", sub_version=1)
    wanted.code_set = list(range(100_000))
    body = encode_body(heartbeat_of("hostile", push_consumer("hostile-readers", wanted)))
    subscriber = attack.connect(attack.target.broker)
    if subscriber is None or not attack.push(subscriber, frame(RequestCode.HEART_BEAT, {}, body)):
        return
    fields = pull("empty", queue=3, suspend=1 << 40) | {"sysFlag": str(_SUSPEND)}
    data = frame(RequestCode.PULL_MESSAGE, fields)
    attack.flood(attack.target.broker, 4, lambda: data)


def whole_tables(attack: Attack) -> None:
    """Administrators' requests for all there is, in a loop."""

    def requests() -> Iterator[RemotingCommand]:
        while True:
            for code in _WHOLE_TABLES:
                request = RemotingCommand.request(code)
                request.ext_fields = {"isOrder": "false"}
                yield request

    attack.ask_each(attack.target.broker, requests(), window=4)


def _again(request: RemotingCommand) -> Iterator[RemotingCommand]:
    while True:
        yield request


def _make_topic(attack: Attack, topic: str) -> None:
    """Makes the topic with a message in its first queue; queue 3 stays empty."""
    with Connection(attack.target.broker) as connection:
        connection.request(send_request(topic, 0, b"first"))
