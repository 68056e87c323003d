"""Messages of the topic: ours as stock reads them, stock's, and what is no such message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketmq_tw.proxy.heartbeat_sync.records import (
    GRPC,
    MAX_NAME,
    MAX_RECORD_BYTES,
    REGISTER,
    UNREGISTER,
    Origin,
    ProxyIdentity,
    decode_consumer,
    encode_consumer,
    heartbeat_subscriptions,
)
from rocketmq_tw.wire.bodies.clients import ConsumerData, SubscriptionData
from rocketmq_tw.wire.errors import BodyError

SUBSCRIPTION = {
    "classFilterMode": False,
    "codeSet": [],
    "expressionType": "TAG",
    "subString": "*",
    "subVersion": 7,
    "tagsSet": [],
    "topic": "T",
}
#: The fields of a message of stock 5.3.3's, in its order.
STOCK = json.dumps(
    {
        "channelData": json.dumps(
            {
                "extendAttribute": json.dumps([SUBSCRIPTION]),
                "remoteProxyIp": "10.0.0.5",
                "localAddress": "10.0.0.5:8080",
                "type": "REMOTING",
                "remoteAddress": "10.0.0.9:40000",
            }
        ),
        "clientId": "10.0.0.9@DEFAULT",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "group": "G",
        "heartbeatType": "REGISTER",
        "language": "JAVA",
        "lastUpdateTimestamp": 1_700_000_000_000,
        "localProxyId": "10.0.0.5%8080%8081",
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": [SUBSCRIPTION],
        "version": 475,
    }
).encode()
IDENTITY = ProxyIdentity("10.0.0.1", 8080, 8081)
ORIGIN = Origin("c", GRPC, "10.0.0.9:40000", "10.0.0.1:8081", "PYTHON", 475)


def test_proxies_at_one_port_are_told_apart_by_their_processes() -> None:
    assert str(IDENTITY) == "10.0.0.1%8080%8081"
    assert str(IDENTITY._replace(process=7)) == "10.0.0.1%8080%8081%7"


def test_what_stock_tells() -> None:
    record, channel = decode_consumer(STOCK)
    assert (record.heartbeat_type, record.client_id, record.group) == (
        REGISTER,
        "10.0.0.9@DEFAULT",
        "G",
    )
    assert (record.language, record.version, record.last_update_timestamp) == (
        "JAVA",
        475,
        1_700_000_000_000,
    )
    assert record.local_proxy_id == "10.0.0.5%8080%8081"
    assert not record.is_known_to_brokers
    assert (channel.remote_address, channel.type) == ("10.0.0.9:40000", "REMOTING")
    (wanted,) = heartbeat_subscriptions(record)
    assert (wanted.topic, wanted.sub_string, wanted.sub_version) == ("T", "*", 7)


def test_ours_has_stock_s_fields() -> None:
    consumer = ConsumerData(
        group_name="G",
        consume_type="CONSUME_ACTIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=[SubscriptionData(topic="T", sub_string="*")],
    )
    body = encode_consumer(REGISTER, IDENTITY, ORIGIN, consumer, 1000, attribute='{"a":1}')
    told, stock = json.loads(body), json.loads(STOCK)
    assert told.keys() - {"knownToBrokers"} == stock.keys()
    assert told["subscriptionDataSet"][0].keys() == stock["subscriptionDataSet"][0].keys()
    channel = json.loads(told["channelData"])
    assert channel.keys() == json.loads(stock["channelData"]).keys()
    assert channel["type"] == "GRPC_V2" and channel["extendAttribute"] == '{"a":1}'
    assert told["localProxyId"] == "10.0.0.1%8080%8081"
    record, _ = decode_consumer(body)
    assert record.is_known_to_brokers


def test_a_language_that_stock_does_not_know_is_another_one() -> None:
    origin = ORIGIN._replace(language="COBOL")
    body = encode_consumer(UNREGISTER, IDENTITY, origin, ConsumerData(group_name="G"), 0)
    assert json.loads(body)["language"] == "OTHER"


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(STOCK), **fields}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b"{'group':'G'}",
        b"[" * 100_000,
        b'{"a":' * 20_000,
        changed(heartbeatType="EXPLODE"),
        changed(heartbeatType=None),
        changed(group=""),
        changed(group=5.5),
        changed(group="g" * (MAX_NAME + 1)),
        changed(clientId="c" * (MAX_NAME + 1)),
        changed(consumeType="x" * (MAX_NAME + 1)),
        changed(localProxyId=""),
        changed(version="x"),
        changed(lastUpdateTimestamp=1 << 70),
        changed(channelData="{"),
        changed(channelData="[[["),
        changed(channelData=json.dumps({"remoteAddress": "a" * (MAX_NAME + 1)})),
        changed(padding="x" * MAX_RECORD_BYTES),
    ],
)
def test_what_is_no_heartbeat(body: bytes) -> None:
    with pytest.raises(BodyError):
        decode_consumer(body)


@pytest.mark.parametrize("wanted", [7, "x", [7], [{"topic": 7}], None, {"a": 1}])
def test_subscriptions_that_cannot_be_read_are_none(wanted: object) -> None:
    record, _ = decode_consumer(changed(subscriptionDataSet=wanted))
    assert [each for each in heartbeat_subscriptions(record) if each.topic not in ("7", "")] == []
