"""Requests about a queue, what their answers say, and how a client signs them; used by all clients,
blocking or not."""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

from rocketmq_tw.client.decoding import decode_messages
from rocketmq_tw.client.errors import BrokerError, check_success
from rocketmq_tw.client.message import (
    PulledBytes,
    PullResult,
    PullStatus,
    SendResult,
    SendStatus,
)
from rocketmq_tw.client.preparing import Prepared
from rocketmq_tw.message.tags import TAG_TYPE, parse_tag_expression
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import VERSION_4_9_3, RemotingCommand
from rocketmq_tw.wire.headers.offsets import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_tw.wire.headers.pull import (
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    UNIQUE_KEY_FLAG,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from rocketmq_tw.wire.headers.send import SendMessageResponseHeader

#: Codes after which the same message may be accepted by another broker.
RETRY_ELSEWHERE = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
    }
)

#: Of the codes that say that a message is stored, what a sender is told.
SEND_STATUSES: dict[int, SendStatus] = {status.value: status for status in SendStatus}
_PULL_STATUS: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MESSAGE,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MESSAGE,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}

#: The fields of stock's ACL signature.
ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"


def read_send(
    address: str, response: RemotingCommand, prepared: Prepared, queue: MessageQueue
) -> SendResult:
    """Returns where the message went; raises `BrokerError` where it was refused."""
    status = SEND_STATUSES.get(response.code)
    if status is None:
        raise BrokerError(address, response.code, response.remark)
    header = response.header(SendMessageResponseHeader)
    if header.queue_id != queue.queue_id:
        queue = MessageQueue(
            topic=queue.topic, broker_name=queue.broker_name, queue_id=header.queue_id
        )
    return SendResult(
        status,
        prepared.message_id,
        header.msg_id,
        queue,
        header.queue_offset,
        header.transaction_id,
        header.recall_handle,
    )


def pull_command(
    group: str,
    queue: MessageQueue,
    offset: int,
    *,
    expression: str | None = "*",
    expression_type: str = TAG_TYPE,
    max_messages: int = 32,
    commit_offset: int | None = None,
    suspend_seconds: float = 0.0,
    sub_version: int = 0,
    max_bytes: int | None = None,
) -> RemotingCommand:
    """Makes request 11. With `expression` None the broker takes the subscription of the heartbeat;
    with `suspend_seconds` it holds an empty answer for so long; `commit_offset` is stored on the
    way."""
    flags = 0 if expression is None else PULL_SUBSCRIPTION
    if suspend_seconds > 0:
        flags |= PULL_SUSPEND
    if commit_offset is not None:
        flags |= PULL_COMMIT_OFFSET
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=max_messages,
        sys_flag=flags,
        commit_offset=commit_offset or 0,
        suspend_timeout_millis=int(suspend_seconds * 1000),
        sub_version=sub_version,
        subscription=expression,
        expression_type=expression_type,
        max_msg_bytes=max_bytes,
        bname=queue.broker_name,
    )
    return RemotingCommand.request(RequestCode.PULL_MESSAGE, header)


def read_pull_bytes(address: str, response: RemotingCommand) -> PulledBytes:
    """Returns what was pulled, its records as they came; raises `BrokerError` for any other
    answer."""
    status = _PULL_STATUS.get(response.code)
    if status is None:
        raise BrokerError(address, response.code, response.remark)
    header = response.header(PullMessageResponseHeader)
    return PulledBytes(
        status,
        response.body if status is PullStatus.FOUND else b"",
        header.next_begin_offset,
        header.min_offset,
        header.max_offset,
        header.suggest_which_broker_id,
        header.offset_delta,
    )


def read_pull(
    address: str,
    response: RemotingCommand,
    queue: MessageQueue,
    expression: str | None = None,
    expression_type: str = TAG_TYPE,
    *,
    keep_damaged: bool = False,
) -> PullResult:
    """Returns what was pulled, less the messages whose tag only had the hash code of one asked for.

    Raises `BrokerError` for any other answer, `BodyError` for a damaged record; with
    `keep_damaged` a damaged body is left as it is, and is among the result's `problems`.
    """
    pulled = read_pull_bytes(address, response)
    damaged: dict[int, str] = {}
    messages = decode_messages(pulled.records, queue, damaged if keep_damaged else None)
    if pulled.offset_delta is not None:
        # Records have the offsets of one physical queue, which the next one has again.
        for message in messages:
            message.queue = queue
            message.queue_offset += pulled.offset_delta
    problems = {messages[index].queue_offset: problem for index, problem in damaged.items()}
    if messages and expression_type == TAG_TYPE and expression not in (None, "", "*"):
        wanted = parse_tag_expression(expression)
        messages = [message for message in messages if wanted.matches(message.tags)]
    if problems:
        kept = {message.queue_offset for message in messages}
        problems = {offset: problem for offset, problem in problems.items() if offset in kept}
    return PullResult(
        pulled.status,
        messages,
        pulled.next_offset,
        pulled.min_offset,
        pulled.max_offset,
        pulled.suggested_broker_id,
        problems,
    )


def max_offset_command(queue: MessageQueue) -> RemotingCommand:
    """Makes request 30: the offset that the next message gets."""
    header = GetMaxOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
    )
    return RemotingCommand.request(RequestCode.GET_MAX_OFFSET, header)


def read_max_offset(address: str, response: RemotingCommand) -> int:
    """Returns the offset that the next message gets; raises `BrokerError`."""
    return check_success(address, response).header(GetMaxOffsetResponseHeader).offset


def min_offset_command(queue: MessageQueue) -> RemotingCommand:
    """Makes request 31: the oldest offset that is still there."""
    header = GetMinOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
    )
    return RemotingCommand.request(RequestCode.GET_MIN_OFFSET, header)


def read_min_offset(address: str, response: RemotingCommand) -> int:
    """Returns the oldest offset; raises `BrokerError`."""
    return check_success(address, response).header(GetMinOffsetResponseHeader).offset


def search_offset_command(
    queue: MessageQueue, timestamp_ms: int, *, upper: bool = False
) -> RemotingCommand:
    """Makes request 29: the first offset stored at or after a time; `upper`: the last one at or
    before it."""
    header = SearchOffsetRequestHeader(
        topic=queue.topic,
        queue_id=queue.queue_id,
        timestamp=timestamp_ms,
        boundary_type="UPPER" if upper else "LOWER",
        bname=queue.broker_name,
    )
    return RemotingCommand.request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)


def read_search_offset(address: str, response: RemotingCommand) -> int:
    """Returns the offset that was found; raises `BrokerError`."""
    return check_success(address, response).header(SearchOffsetResponseHeader).offset


def earliest_store_time_command(queue: MessageQueue) -> RemotingCommand:
    """Makes request 32: when the oldest message was stored."""
    header = GetEarliestMsgStoretimeRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
    )
    return RemotingCommand.request(RequestCode.GET_EARLIEST_MSG_STORETIME, header)


def read_earliest_store_time(address: str, response: RemotingCommand) -> int:
    """Returns when the oldest message was stored, in ms since 1970; raises `BrokerError`."""
    header = check_success(address, response).header(GetEarliestMsgStoretimeResponseHeader)
    return header.timestamp


def committed_offset_command(group: str, queue: MessageQueue) -> RemotingCommand:
    """Makes request 14: the offset that a group committed."""
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        bname=queue.broker_name,
    )
    return RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)


def read_committed_offset(address: str, response: RemotingCommand) -> int | None:
    """Returns the offset; None where the group has none for the queue."""
    if response.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return check_success(address, response).header(QueryConsumerOffsetResponseHeader).offset


def commit_offset_command(
    group: str, queue: MessageQueue, offset: int, *, oneway: bool = False
) -> RemotingCommand:
    """Makes request 15: the group goes on at `offset`."""
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=offset,
        bname=queue.broker_name,
    )
    return RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header, oneway=oneway)


@dataclass(frozen=True)
class Credentials:
    """An access key with its secret, as stock's ACL knows them; the secret stays out of `repr`."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def sign(self, command: RemotingCommand) -> None:
        """Adds key and signature: HMAC-SHA1 of the field values in the order of their names,
        followed by the body.

        Servers of 4.9 leave the flag of queries by unique key out of what they check, newer ones
        only for clients up to 4.9.3: where there is one, that version is announced.
        """
        fields = command.ext_fields
        fields[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        unsigned = (SIGNATURE, UNIQUE_KEY_FLAG)
        if UNIQUE_KEY_FLAG in fields:
            command.version = VERSION_4_9_3
        text = "".join(fields[name] for name in sorted(fields) if name not in unsigned)
        digest = hmac.new(self.secret_key.encode(), text.encode() + command.body, hashlib.sha1)
        fields[SIGNATURE] = base64.b64encode(digest.digest()).decode()
