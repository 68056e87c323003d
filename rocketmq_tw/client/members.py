"""Consumers as their session and their brokers know them: what brokers ask and tell them."""

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.client.decoding import decode_messages
from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.net.interfaces import IPeer, IRemotingClient
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.clients import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
)
from rocketmq_tw.wire.bodies.queues import (
    ConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import BodyError, RequestError
from rocketmq_tw.wire.headers.clients import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from rocketmq_tw.wire.headers.offsets import (
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)


class GroupMember:
    """One consumer of a group in a session. A pull consumer has no more than its heartbeat."""

    group: str

    def describe(self) -> ConsumerData:
        """Returns what the heartbeat tells brokers of this consumer."""
        raise NotImplementedError

    def members_changed(self) -> None:
        """Is called when other consumers joined or left the group."""

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """Returns the offset of each queue of a topic that is ours; of all topics for an empty
        one."""
        return {}

    def running_info(self) -> ConsumerRunningInfo:
        """Returns what an administrator wants to know of us."""
        return ConsumerRunningInfo(subscription_set=self.describe().subscription_data_set)

    def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> Deferred[None]:
        """Goes on elsewhere in the queues that are ours."""
        raise self._refuse()

    def consume_now(self, message: ReceivedMessage) -> Deferred[None]:
        """Gives one message to the listener, whatever queue it is from."""
        raise self._refuse()

    def _refuse(self) -> RequestError:
        return RequestError(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f"the consumer of {self.group} pulls by itself: nobody can tell it what to read",
        )


class BrokerRequests:
    """Answers what brokers ask the members of a session (40, 220, 221, 307, 309)."""

    def __init__(self, remoting: IRemotingClient, members: Mapping[str, GroupMember]) -> None:
        self._members = members
        remoting.register(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)
        remoting.register(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset)
        remoting.register(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._status)
        remoting.register(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
        remoting.register(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly)

    def _member(self, group: str) -> GroupMember:
        member = self._members.get(group)
        if member is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no consumer of {group} is here")
        return member

    def _members_changed(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        header = request.header(NotifyConsumerIdsChangedRequestHeader)
        self._member(header.consumer_group).members_changed()
        return request.response()

    def _reset(self, request: RemotingCommand, peer: IPeer) -> Any:
        header = request.header(ResetOffsetRequestHeader)
        done = self._member(header.group).reset_offsets(_read_offsets(request.body))
        return done.addCallback(lambda _: request.response())

    def _status(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        header = request.header(GetConsumerStatusRequestHeader)
        positions = self._member(header.group).positions(header.topic)
        return request.response(body=encode_body(ConsumerStatusBody(message_queue_table=positions)))

    def _running_info(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        header = request.header(GetConsumerRunningInfoRequestHeader)
        info = self._member(header.consumer_group).running_info()
        return request.response(body=encode_body(info))

    def _consume_directly(self, request: RemotingCommand, peer: IPeer) -> Any:
        header = request.header(ConsumeMessageDirectlyResultRequestHeader)
        queue = MessageQueue(topic=header.topic or "", broker_name=header.broker_name or "")
        messages = decode_messages(request.body, queue)
        if len(messages) != 1:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "give exactly one message to consume")

        def answer(outcome: str, remark: str | None = None) -> RemotingCommand:
            result = ConsumeMessageDirectlyResult(consume_result=outcome, remark=remark)
            return request.response(body=encode_body(result))

        return (
            self._member(header.consumer_group)
            .consume_now(messages[0])
            .addCallbacks(
                lambda _: answer("CR_SUCCESS"),
                lambda failure: answer("CR_THROW_EXCEPTION", failure.getErrorMessage()),
            )
        )


def _read_offsets(body: bytes) -> dict[MessageQueue, int]:
    """Returns the offsets of 220: by object keys for Java, as a list for others."""
    try:
        return decode_body(ResetOffsetBody, body).offset_table
    except BodyError:
        return {
            MessageQueue(
                topic=entry.topic, broker_name=entry.broker_name, queue_id=entry.queue_id
            ): entry.offset
            for entry in decode_body(ResetOffsetBodyForC, body).offset_table
        }
