"""Messages of classic clients and the types of their topics."""

import pytest

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.asked import refused
from tests.support.classic import ClassicPort, classic_request, echo
from tests.support.proxy import HEARTBEAT_SYNC_TOPIC

DELAYED = "TIMER_DELAY_SEC\x0110\x02"


def sends(topic: str, properties: str) -> list[RemotingCommand]:
    return [
        classic_request(RequestCode.SEND_MESSAGE_V2, b=topic, i=properties, n="broker-a"),
        classic_request(RequestCode.SEND_MESSAGE_V2, b=topic, e=0, i=properties, old=True),
        classic_request(RequestCode.SEND_MESSAGE, topic=topic, queueId=0, properties=properties),
    ]


@pytest.fixture
def port() -> ClassicPort:
    port = ClassicPort(typed=True)
    for topic, kind in (("Delays", "DELAY"), ("Plain", "NORMAL"), ("All", "MIXED"), ("Old", "")):
        port.brokers.add_topic(topic, {"broker-a": 4}, message_type=kind)
    port.brokers.add_topic("%RETRY%G", {"broker-a": 1}, message_type="NORMAL")
    for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2):
        port.brokers.answer(code, echo)
    return port


@pytest.mark.parametrize(
    ("topic", "properties"),
    [
        ("Delays", DELAYED),
        ("Plain", "KEYS\x01k\x02"),
        ("All", DELAYED),
        # Topics of 4.x say nothing of a type, and their producers know of none.
        ("Old", DELAYED),
        ("%RETRY%G", DELAYED),
    ],
)
def test_a_topic_takes_messages_of_its_type(port: ClassicPort, topic: str, properties: str) -> None:
    for request in sends(topic, properties):
        assert port.ask(request).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("topic", "properties"), [("Plain", DELAYED), ("Delays", "")])
def test_messages_of_another_type_are_refused(
    port: ClassicPort, topic: str, properties: str
) -> None:
    for request in sends(topic, properties):
        with refused(ResponseCode.MESSAGE_ILLEGAL) as caught:
            port.ask(request)
        assert "message.type" in caught.value.remark
    assert not port.brokers.asked


def test_a_topic_that_is_not_there_yet_may_be_made_by_the_send(port: ClassicPort) -> None:
    port.ask(classic_request(RequestCode.SEND_MESSAGE_V2, b="New", i=DELAYED, n="broker-a"))
    assert port.asked_names() == ["broker-a"]


def test_a_send_does_not_wait_long_for_what_its_topic_takes(port: ClassicPort) -> None:
    port.brokers.silent.add(RequestCode.GET_TOPIC_CONFIG)
    sent = port.begin(
        classic_request(RequestCode.SEND_MESSAGE_V2, b="Plain", i=DELAYED, n="broker-a")
    )
    port.clock.advance(1)
    assert sent.result.code == ResponseCode.SUCCESS


def test_types_are_not_looked_at_unless_that_is_wanted() -> None:
    port = ClassicPort()
    port.brokers.add_topic("Plain", {"broker-a": 4}, message_type="NORMAL")
    port.brokers.answer(RequestCode.SEND_MESSAGE_V2, echo)
    port.ask(classic_request(RequestCode.SEND_MESSAGE_V2, b="Plain", i=DELAYED, n="broker-a"))
    assert port.asked_names() == ["broker-a"]


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize(
    "topic", ["rmq_sys_REVIVE_LOG_DefaultCluster", "rmq_sys_wheel_timer", HEARTBEAT_SYNC_TOPIC]
)
def test_what_servers_tell_each_other_is_none_of_a_client(topic: str, typed: bool) -> None:
    """A broker with clusterAddresses takes check points from its proxies, and the timer puts what
    it has into any topic; proxies believe what their topic says of consumers."""
    port = ClassicPort(typed=typed)
    port.brokers.add_topic(topic, {"broker-a": 8})
    for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2):
        port.brokers.answer(code, echo)
    for request in sends(topic, "TAGS\x01ck\x02"):
        with refused(ResponseCode.NO_PERMISSION) as caught:
            port.ask(request)
        assert topic in caught.value.remark
    assert not port.brokers.asked
