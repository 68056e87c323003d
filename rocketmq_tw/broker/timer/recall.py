"""Request 370: a producer recalls a message that still waits for its time."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.tables.remarks import broker_unwritable
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.redirects import Draft
from rocketmq_tw.broker.writing.sink import PutResult
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.ids import RecallHandle, decode_recall_handle
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import number
from rocketmq_tw.net.address import split_address
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from rocketmq_tw.wire.permissions import is_writable

#: The tag and the body of a recall, as it is stored.
_TAG = "_RECALL_TAG_"
_BODY = b"0"


class RecallRequests:
    """Answers request 370, with stock's checks in their order and its codes."""

    def __init__(
        self,
        host: Host,
        addresses: Addresses,
        topics: TopicTable,
        writing: Writing,
    ) -> None:
        self._config = host.config
        self._store_config = host.store_config
        self._now_ms = host.now_ms
        self._addresses = addresses
        self._topics = topics
        self._sink = writing.sink
        self._redirects = writing.redirects

    def handlers(self, role: Role) -> dict[int, Handler]:
        """Returns the handler of request 370 in a role."""

        def refuse(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
            self._need_enabled()
            code = ResponseCode.SERVICE_NOT_AVAILABLE
            if role.copies_log:
                code = ResponseCode.SLAVE_NOT_AVAILABLE
            raise RequestError(
                code, f"this broker is {role.words} and recalls no messages: ask the master"
            )

        return {RequestCode.RECALL_MESSAGE: self.recall if role is Role.MASTER else refuse}

    def recall(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers with the id of the message that is recalled, once the recall is safe. Raises, or
        fails with, `RequestError`. Whether such a message waits is not looked up, as in stock."""
        config, now = self._config, self._now_ms()
        self._need_enabled()
        accepts_from = config.start_accept_send_request_time_stamp
        if accepts_from > 0 and now < accepts_from:
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "the broker accepts no messages yet: recall it again later",
            )
        if (
            not is_writable(config.broker_permission)
            and not config.allow_recall_when_broker_not_writeable
        ):
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, broker_unwritable(config))
        header = request.header(RecallMessageRequestHeader)
        self._topics.known(header.topic)
        handle = self._handle(header, now)
        message = self._message(header, handle, peer, now)

        def ended(result: PutResult) -> RemotingCommand:
            if not result.is_safe:
                what = "is not safe yet" if result.is_stored else "could not be stored"
                remark = f"it {what}: {result.code.name}; recall it again"
                raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
            answer = RecallMessageResponseHeader(msg_id=handle.unique_id)
            response = request.response(header=answer)
            response.ext_fields[props.MSG_REGION] = config.region_id
            return response

        def refused(failure: Failure) -> RemotingCommand:
            if isinstance(failure.value, RequestError):
                raise RequestError(ResponseCode.SYSTEM_ERROR, failure.value.remark)
            failure.raiseException()

        return self._sink.put(message, wait=True).addCallbacks(ended, refused)

    def _need_enabled(self) -> None:
        if not self._config.recall_message_enable:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                "this broker recalls no messages: recallMessageEnable=false",
            )

    def _handle(self, header: RecallMessageRequestHeader, now: int) -> RecallHandle:
        def refused(why: str) -> RequestError:
            return RequestError(ResponseCode.ILLEGAL_OPERATION, f"the recall handle {why}")

        try:
            handle = decode_recall_handle(header.recall_handle or "")
        except ValueError as error:
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        if handle.topic != header.topic:
            raise refused(f"is for the topic {handle.topic}, not {header.topic}")
        if handle.broker_name != self._config.broker_name:
            raise refused(f"is of the broker {handle.broker_name}: ask that one")
        timestamp = number(handle.timestamp)
        left = -1 if timestamp is None else timestamp - now
        if not 0 < left < self._store_config.timer_max_delay_sec * 1000:
            raise refused("is for a time that is over, or too far away")
        return handle

    def _message(
        self, header: RecallMessageRequestHeader, handle: RecallHandle, peer: IPeer, now: int
    ) -> StoredMessage:
        properties = {
            props.TAGS: _TAG,
            props.TIMER_DEL_UNIQKEY: f"{handle.topic}+{handle.unique_id}",
            props.UNIQ_KEY: handle.unique_id,
            props.TIMER_DELIVER_MS: handle.timestamp,
            props.BORN_TIMESTAMP: str(now),
        }
        if header.producer_group:
            properties[props.PGROUP] = header.producer_group
        message = StoredMessage(
            topic=handle.topic,
            queue_id=0,
            body=_BODY,
            born_timestamp=now,
            born_host=split_address(peer.address),
            store_host=self._addresses.store_host,
        )
        draft = Draft(message, properties)
        try:
            taken = self._redirects.route_by_property(draft)
        except RequestError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, error.remark) from error
        if not taken:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "the message's time is over")
        draft.write_properties()
        return message
