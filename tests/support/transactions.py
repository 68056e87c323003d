"""Producers of transactional messages in memory, and what a broker's files say of theirs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.message.model import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rocketmq_tw.message.record import decode_record
from rocketmq_tw.wire.bodies.clients import HeartbeatData, ProducerData
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from tests.support.broker import BrokerInMemory, ok
from tests.support.network import FakePeer
from tests.support.stores import START_MS

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
SYSTEM_GROUP = "CID_RMQ_SYS_TRANS"
COMMIT, ROLLBACK, UNKNOWN = TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, 0


def begin(broker: BrokerInMemory, body: bytes = b"x", **properties: str) -> dict[str, str]:
    """Sends a half message of the group P; the fields of the answer."""
    wanted = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": f"ID-{body.decode()}", "TAGS": "a"}
    born = broker.now_ms()
    return ok(broker.send(body, properties=wanted | properties, born_timestamp=born))


def end_request(sent: dict[str, str], decision: int = COMMIT, **fields: Any) -> RemotingCommand:
    """What a producer says of a message, by the answer that its send got."""
    header: dict[str, Any] = {
        "producer_group": "P",
        "tran_state_table_offset": int(sent["queueOffset"]),
        "commit_log_offset": int(sent["msgId"][-16:], 16),
        "commit_or_rollback": decision,
        "msg_id": sent.get("transactionId", ""),
    }
    return RemotingCommand.request(
        RequestCode.END_TRANSACTION, EndTransactionRequestHeader(**header | fields)
    )


def end(
    broker: BrokerInMemory, sent: dict[str, str], decision: int = COMMIT, **fields: Any
) -> RemotingCommand:
    """Decides, and gives the answer."""
    request = end_request(sent, decision, **fields)
    answer = broker.request(request)
    for _ in range(20):
        if answer is not None:
            return answer
        broker.clock.advance(0)
        answer = next((r for r in broker.peer.replies if r.opaque == request.opaque), None)
    raise AssertionError("no answer")


def connect(broker: BrokerInMemory, client_id: str = "p", group: str = "P") -> FakePeer:
    """A producer that says that it is there."""
    peer = FakePeer(f"127.0.0.1:{40000 + len(client_id)}")
    data = HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name=group)])
    broker.ask(RequestCode.HEART_BEAT, body=data, peer=peer)
    return peer


def let(broker: BrokerInMemory, seconds: float, step: float = 0.1) -> None:
    """Lets time pass."""
    for _ in range(round(seconds / step)):
        broker.clock.advance(step)


def questions(peer: FakePeer) -> list[CheckTransactionStateRequestHeader]:
    """What a producer was asked so far, in the order in which it was."""
    return [
        command.header(CheckTransactionStateRequestHeader)
        for command in peer.oneways
        if command.code == RequestCode.CHECK_TRANSACTION_STATE
    ]


def answer(
    broker: BrokerInMemory, asked: CheckTransactionStateRequestHeader, decision: int
) -> RemotingCommand:
    """The producer's answer to a question."""
    sent = {
        "queueOffset": str(asked.tran_state_table_offset),
        "msgId": asked.offset_msg_id or "",
        "transactionId": asked.transaction_id or "",
    }
    return end(broker, sent, decision, from_transaction_check=True)


def bodies(broker: BrokerInMemory, topic: str = "Topic") -> Counter[bytes]:
    """What can be consumed of queue 0, and how often."""
    return Counter(message.body for message in broker.consume(topic))


def times(broker: BrokerInMemory, topic: str = HALF) -> list[int]:
    """When the messages of a topic were stored, in ms since the clock began."""
    return [message.store_timestamp - START_MS for message in broker.consume(topic)]


def ops(broker: BrokerInMemory) -> list[str]:
    """The op messages' texts."""
    return [message.body.decode() for message in broker.consume(OP)]


def stored(broker: BrokerInMemory, position: int) -> ReceivedMessage | Any:
    """The message at an offset of the log."""
    record = broker.store.record_at(position)
    assert record is not None
    return decode_record(record)
