"""Popped messages that are in the log of another broker: its acting master sent their check points
here (docs/formats/pop.md, "Revival")."""

from __future__ import annotations

from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.pop.check_points import REVIVE_GROUP
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import decode_record
from rocketmq_tw.store.multi_dispatch import offset_in
from rocketmq_tw.wire.bodies.pop import PopCheckPoint
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import HeaderError, RequestError
from rocketmq_tw.wire.headers.pull import (
    PULL_SUBSCRIPTION,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)

#: With these a broker gives no message; the offsets of its answer say whether it will once.
_WITHOUT_MESSAGE = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


class Unreachable(Exception):
    """The messages of a check point cannot be had now."""


class RemoteMessages:
    """Fetches messages from the masters, or acting masters, of other groups."""

    def __init__(self, brokers: BrokerClient) -> None:
        self._brokers = brokers

    async def fetch(self, point: PopCheckPoint, offset: int) -> StoredMessage | None:
        """Returns the message at a queue offset of `point`; None where its broker has it no more.
        Raises `Unreachable` where that broker does not tell."""
        name, topic = point.broker_name, point.topic or ""
        # The group of brokers themselves, which each of them knows.
        header = PullMessageRequestHeader(
            consumer_group=REVIVE_GROUP,
            topic=topic,
            queue_id=point.queue_id,
            queue_offset=offset,
            max_msg_nums=1,
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription="*",
            expression_type="TAG",
            bname=name,
        )
        try:
            answer = await self._brokers.ask(name, topic, RequestCode.PULL_MESSAGE, header)
            return _found(answer, topic, offset)
        except (RequestError, HeaderError, ValueError) as error:
            why = error.remark if isinstance(error, RequestError) else error
            raise Unreachable(f"its messages are on the broker {name}: {why}") from error


def _found(answer: RemotingCommand, topic: str, offset: int) -> StoredMessage | None:
    if answer.code == ResponseCode.SUCCESS:
        message = decode_record(answer.body)
        return message if offset_in(topic, message) == offset else None
    if answer.code in _WITHOUT_MESSAGE:
        header = answer.header(PullMessageResponseHeader)
        if max(header.min_offset, header.next_begin_offset) > offset:
            return None
    # A slave that serves no reads, or has not copied it, for example.
    raise ValueError(f"code {answer.code}, {answer.remark or 'no remark'}")
