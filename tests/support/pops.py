"""Popping from a `BrokerInMemory`, and what a client makes of the answers."""

from __future__ import annotations

from typing import Any, NamedTuple

from rocketmq_tw.message.extra_info import kind_of
from rocketmq_tw.message.names import pop_retry_topic, revive_topic
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
)
from tests.support.broker import BrokerInMemory, ok
from tests.support.network import FakePeer

REVIVE = revive_topic("DefaultCluster")


class PoppedMessage(NamedTuple):
    """What a consumer has of a message; `extra_info` as it hands it back."""

    body: bytes
    topic: str
    queue_id: int
    queue_offset: int
    reconsume_times: int
    properties: dict[str, str]
    extra_info: str


class Popper:
    """A member of a group that pops a topic; `fields` go into its pops' header."""

    def __init__(
        self, broker: BrokerInMemory, topic: str = "Topic", group: str = "G", **fields: Any
    ) -> None:
        self.broker = broker
        self.topic = topic
        self.group = group
        self.fields = fields
        self.peer = FakePeer()
        if group not in broker.groups:
            broker.groups.update(SubscriptionGroupConfig(group_name=group))

    def request(self, **fields: Any) -> RemotingCommand:
        header: dict[str, Any] = {
            "consumer_group": self.group,
            "topic": self.topic,
            "queue_id": -1,
            "max_msg_nums": 32,
            "invisible_time": 60_000,
            "poll_time": 0,
            "born_time": 0,
            "init_mode": 0,
        }
        return RemotingCommand.request(
            RequestCode.POP_MESSAGE, PopMessageRequestHeader(**header | self.fields | fields)
        )

    def ask(self, **fields: Any) -> RemotingCommand | None:
        """The answer by the end of the turn; None where it is held."""
        return self.broker.request(self.request(**fields), self.peer)

    def pop(self, **fields: Any) -> list[PoppedMessage]:
        """The messages popped now; none where there are none."""
        answer = self.ask(**fields)
        assert answer is not None, "it is held"
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.POLLING_TIMEOUT, answer
            return []
        return self.messages(answer)

    def bodies(self, **fields: Any) -> list[bytes]:
        return [message.body for message in self.pop(**fields)]

    def messages(self, answer: RemotingCommand) -> list[PoppedMessage]:
        """The messages of an answer with their extra infos, as stock's client makes them."""
        fields = ok(answer)
        starts: dict[tuple[str, str], str] = {}
        for info in fields["startOffsetInfo"].split(";"):
            kind, queue, start = info.split(" ")
            starts[kind, queue] = start
        popped = []
        for record in decode_records(answer.body):
            properties = parse_properties(record.properties)
            extra_info = properties.get("POP_CK")
            queue_id, queue_offset = record.queue_id, record.queue_offset
            names = properties.get("INNER_MULTI_DISPATCH", "").split(",")
            if extra_info is None and self.topic in names:
                offsets = properties["INNER_MULTI_QUEUE_OFFSET"].split(",")
                queue_id, queue_offset = 0, int(offsets[names.index(self.topic)])
            if extra_info is None:
                kind = kind_of(record.topic)
                start = starts[kind, str(queue_id)]
                extra_info = (
                    f"{start} {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']}"
                    f" {kind} {self.broker.config.broker_name} {queue_id} {queue_offset}"
                )
            popped.append(
                PoppedMessage(
                    record.body,
                    record.topic,
                    queue_id,
                    queue_offset,
                    record.reconsume_times,
                    properties,
                    extra_info,
                )
            )
        return popped

    def ack(self, *messages: PoppedMessage) -> None:
        """Each must be taken."""
        for message in messages:
            ok(self.broker.request(self.ack_request(message)))

    def ack_request(self, message: PoppedMessage) -> RemotingCommand:
        header = AckMessageRequestHeader(
            consumer_group=self.group,
            topic=self.real_topic(message),
            queue_id=message.queue_id,
            extra_info=message.extra_info,
            offset=message.queue_offset,
        )
        return RemotingCommand.request(RequestCode.ACK_MESSAGE, header)

    def batch_ack_request(self, message: PoppedMessage) -> RemotingCommand:
        """The acknowledgement of one message as a batch."""
        start, popped, hidden, revive_queue, kind = message.extra_info.split(" ")[:5]
        bits = 1 << message.queue_offset - int(start)
        ack = BatchAck(
            bits=bits.to_bytes(bits.bit_length() // 8 + 1, "little"),
            group=self.group,
            invisible_time=int(hidden),
            pop_time=int(popped),
            queue_id=message.queue_id,
            retry=kind,
            revive_queue_id=int(revive_queue),
            start_offset=int(start),
            topic=self.topic,
        )
        body = BatchAckMessageRequestBody(broker_name=self.broker.config.broker_name, acks=[ack])
        return RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, None, encode_body(body))

    def hide(self, message: PoppedMessage, invisible_ms: int) -> PoppedMessage:
        """The message with its new extra info."""
        return self.hidden(message, self.broker.request(self.hide_request(message, invisible_ms)))

    def hidden(self, message: PoppedMessage, answer: RemotingCommand | None) -> PoppedMessage:
        """The message with the extra info of an answer to `hide_request`."""
        fields = ok(answer)
        parts = message.extra_info.split(" ")
        parts[0] = str(message.queue_offset)
        parts[1:4] = fields["popTime"], fields["invisibleTime"], fields["reviveQid"]
        return message._replace(extra_info=" ".join(parts))

    def hide_request(self, message: PoppedMessage, invisible_ms: int) -> RemotingCommand:
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=self.group,
            topic=self.real_topic(message),
            queue_id=message.queue_id,
            extra_info=message.extra_info,
            offset=message.queue_offset,
            invisible_time=invisible_ms,
        )
        return RemotingCommand.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)

    def real_topic(self, message: PoppedMessage) -> str:
        kind = message.extra_info.split(" ")[4]
        return (
            self.topic
            if kind not in ("1", "2")
            else pop_retry_topic(self.topic, self.group, int(kind))
        )


def pass_time(broker: BrokerInMemory, seconds: float) -> None:
    """Lets the broker work for so long."""
    broker.clock.pump([0.25] * round(seconds * 4))


def drain(broker: BrokerInMemory, group: str = "G", topic: str = "Topic") -> list[bytes]:
    """What a consumer pops now, until there is nothing; each is acknowledged."""
    popper, bodies = Popper(broker, topic, group), []
    while popped := popper.pop():
        popper.ack(*popped)
        bodies += [message.body for message in popped]
    return bodies
