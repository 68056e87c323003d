"""Messages of a broker, found by where they are stored or by their keys, and units of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from rocketmq_tw.client.admin.requests import ServerRequests
from rocketmq_tw.client.errors import check_success
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.clients import ConsumeQueueBody
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pull import (
    UNIQUE_KEY_FLAG,
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)

# Most commands that ask a broker show no message.
if TYPE_CHECKING:
    from rocketmq_tw.client.message import ReceivedMessage


class MessageAdmin(ServerRequests):
    """Looks at messages of one broker; its address stands for its name in them."""

    def view_message(
        self, broker: str, offset: int, topic: str | None = None
    ) -> Deferred[ReceivedMessage]:
        """Fires with the message that begins at an offset of the broker's log; the address of the
        broker stands for its name. The topic may be left out: the message has it."""
        from rocketmq_tw.client.decoding import decode_messages

        header = ViewMessageRequestHeader(offset=offset, topic=topic)

        def read(address: str, response: RemotingCommand) -> ReceivedMessage:
            queue = MessageQueue(topic=topic or "", broker_name=broker)
            (message,) = decode_messages(check_success(address, response).body, queue)
            if topic is None:
                message.queue = msgspec.structs.replace(message.queue, topic=message.topic)
            return message

        request = RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, header)
        return self._read(broker, request, read)

    def query_messages(
        self,
        broker: str,
        topic: str,
        key: str,
        *,
        most: int,
        begin_ms: int,
        end_ms: int,
        unique: bool = False,
    ) -> Deferred[list[ReceivedMessage]]:
        """Fires with at most `most` messages that have `key`, or `unique`: that as their unique id,
        stored from `begin_ms` to `end_ms`."""
        from rocketmq_tw.client.decoding import decode_messages

        header = QueryMessageRequestHeader(
            topic=topic, key=key, max_num=most, begin_timestamp=begin_ms, end_timestamp=end_ms
        )
        request = RemotingCommand.request(RequestCode.QUERY_MESSAGE, header)
        if unique:
            request.ext_fields[UNIQUE_KEY_FLAG] = "true"

        def read(address: str, response: RemotingCommand) -> list[ReceivedMessage]:
            if response.code == ResponseCode.QUERY_NOT_FOUND:
                return []
            queue = MessageQueue(topic=topic, broker_name=broker)
            return decode_messages(check_success(address, response).body, queue)

        return self._read(broker, request, read)

    def queue_units(
        self, broker: str, topic: str, queue_id: int, index: int, count: int, group: str | None
    ) -> Deferred[ConsumeQueueBody]:
        """Fires with `count` units of a queue from `index` on, with a group what its filter makes
        of them."""
        header = QueryConsumeQueueRequestHeader(
            topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
        )
        return self._body(broker, RequestCode.QUERY_CONSUME_QUEUE, ConsumeQueueBody, header)
