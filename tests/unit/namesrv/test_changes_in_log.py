"""Each change by an administrator is one line in the name server's log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.net.interfaces import PeerIdentity
from rocketmq_tw.wire.codes import RequestCode
from tests.support.network import FakePeer

VALUE = {"namespace": "NS", "key": "Named"}


def queues(*brokers: str, number: int = 4) -> bytes:
    """The body of 217."""
    data = [
        {"brokerName": name, "readQueueNums": number, "writeQueueNums": number, "perm": 6}
        for name in brokers
    ]
    return json.dumps({"queueDatas": data}).encode()


CHANGES: list[tuple[RequestCode, dict[str, str], bytes]] = [
    (RequestCode.PUT_KV_CONFIG, VALUE | {"value": "1"}, b""),
    (RequestCode.DELETE_KV_CONFIG, VALUE, b""),
    (RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "Named"}, b""),
    (RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "Named"}, b""),
    (RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "Named"}, b""),
    (RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "Named"}, queues("Named")),
    (RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"waitSecondsForService=7"),
]
#: What brokers say of themselves.
OF_BROKERS = {
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.QUERY_DATA_VERSION,
    RequestCode.BROKER_HEARTBEAT,
}
LOOKS = {
    RequestCode.GET_KV_CONFIG,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
    RequestCode.GET_NAMESRV_CONFIG,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_BROKER_MEMBER_GROUP,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
}


def test_each_request_either_changes_something_or_looks(namesrv: Any) -> None:
    changing = {code for code, _, _ in CHANGES}
    assert set(namesrv.server.handlers) == changing | OF_BROKERS | LOOKS
    assert len(namesrv.server.handlers) == len(changing) + len(OF_BROKERS) + len(LOOKS)


@pytest.mark.parametrize("code, fields, body", CHANGES, ids=lambda each: getattr(each, "name", ""))
def test_who_changed_what_is_logged(
    namesrv: Any, code: RequestCode, fields: dict[str, str], body: bytes
) -> None:
    namesrv.register("Named", topics=("Named", "T2"))
    if code == RequestCode.ADD_WRITE_PERM_OF_BROKER:
        namesrv.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, fields)
    peer = FakePeer(identity=PeerIdentity("alice", is_administrator=True))
    with capturedLogs() as events:
        namesrv.ask(code, fields, body, peer=peer)
    (line,) = [line for line in map(formatEvent, events) if line and peer.address in line]
    assert line.startswith(f"{peer.address} (alice) at {peer.local_address} ")
    assert "Named" in line or "waitSecondsForService=7 (was 45)" in line
    assert "(was " in line


def said(namesrv: Any, topic: str, body: bytes) -> list[str]:
    """What is said of 217, behind who asked."""
    peer = FakePeer()
    with capturedLogs() as events:
        namesrv.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": topic}, body, peer=peer)
    start = f"{peer.address} at {peer.local_address} "
    return [line.removeprefix(start) for line in map(formatEvent, events) if line]


def test_which_queues_a_topic_had_is_logged(namesrv: Any) -> None:
    namesrv.register("broker-a")
    namesrv.register("broker-b", port=10921)
    of_a = "broker-a: 4 to read, 4 to write, perm 6"
    made = [f"registered topic 'Orders': {of_a} (was not there)"]
    assert said(namesrv, "Orders", queues("broker-a")) == made
    assert said(namesrv, "Orders", queues("broker-a")) == [], "it has them already"
    of_b = "broker-b: 8 to read, 8 to write, perm 6"
    assert said(namesrv, "Orders", queues("broker-b", "broker-a", number=8)) == [
        f"registered topic 'Orders': {of_b}, {of_a.replace('4', '8')} (was {of_a})"
    ]


def test_a_topic_of_brokers_that_are_not_there_is_not_said_to_be_registered(namesrv: Any) -> None:
    assert said(namesrv, "Orders", queues("nobody")) == [
        "named a broker that is not registered for topic 'Orders'"
    ]
