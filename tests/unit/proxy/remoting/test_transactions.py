"""Transactions of classic clients through a proxy."""

import pytest

from rocketmq_tw.proxy.remoting.clients import MAX_TRANSACTIONS
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.asked import refused
from tests.support.classic import ClassicPort, classic_request
from tests.support.network import FakePeer
from tests.support.proxy import answer_of

PREPARED = 4


@pytest.fixture
def port() -> ClassicPort:
    port = ClassicPort()
    port.brokers.add_topic("T", {"broker-b": 4})
    port.brokers.add_topic("Other", {"broker-a": 4})

    def store(request: RemotingCommand) -> RemotingCommand:
        response = request.response()
        response.ext_fields = {"transactionId": request.ext_fields["i"]}
        return response

    port.brokers.answer(RequestCode.SEND_MESSAGE_V2, store)
    return port


def send_half(port: ClassicPort, unique_id: str, flags: int = PREPARED) -> None:
    port.ask(classic_request(RequestCode.SEND_MESSAGE_V2, b="T", e=0, f=flags, i=unique_id))
    port.brokers.asked.clear()


def decision(unique_id: str, **fields: str) -> RemotingCommand:
    return classic_request(
        RequestCode.END_TRANSACTION, oneway=True, transactionId=unique_id, **fields
    )


def test_a_5x_client_names_the_broker_of_its_transaction(port: ClassicPort) -> None:
    port.ask(decision("ID", bname="broker-a"))
    assert port.asked_names() == ["broker-a"]


def test_the_broker_that_took_the_half_message_hears_the_decision(port: ClassicPort) -> None:
    send_half(port, "ID")
    port.ask(decision("ID"))
    (asked,) = port.brokers.asked
    assert asked.broker_name == "broker-b"
    assert asked.request.is_oneway


@pytest.mark.parametrize("sent_by_another", [True, False])
def test_a_decision_about_what_is_not_known_says_what_to_do(
    port: ClassicPort, sent_by_another: bool
) -> None:
    if sent_by_another:
        send_half(port, "ID")
    with refused(ResponseCode.VERSION_NOT_SUPPORTED) as caught:
        port.ask(decision("ID"), FakePeer("10.0.0.8:1"))
    assert "decide when the broker asks" in caught.value.remark


def test_the_only_broker_of_a_cluster_hears_all_decisions(port: ClassicPort) -> None:
    del port.brokers.routes["Other"]
    port.ask(decision("ID"))
    assert port.asked_names() == ["broker-b"]


def test_messages_without_a_transaction_are_not_remembered(port: ClassicPort) -> None:
    send_half(port, "ID", flags=0)
    with refused(ResponseCode.VERSION_NOT_SUPPORTED):
        port.ask(decision("ID"))


def test_a_broker_that_asks_is_told_the_decision(port: ClassicPort) -> None:
    client = port.requests.clients.of(port.peer)
    check = RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, body=b"half", oneway=True)
    check.ext_fields = {"transactionId": "ID", "bname": "broker-b"}
    answer_of(client.ask(check, 3.0))
    (sent,) = port.peer.oneways
    assert (sent.code, sent.body, sent.ext_fields) == (39, b"half", check.ext_fields)
    port.ask(decision("ID"))
    assert port.asked_names() == ["broker-b"]


def test_what_is_remembered_of_a_client_is_bounded(port: ClassicPort) -> None:
    client = port.requests.clients.of(port.peer)
    for number in range(MAX_TRANSACTIONS + 1):
        client.note_transaction(str(number), "broker-b")
    client.note_transaction("x" * 256, "broker-b")
    assert client.take_transaction("0") is None
    assert client.take_transaction("x" * 256) is None
    assert client.take_transaction("1") == "broker-b"
