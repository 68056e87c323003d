"""A name server and a broker in a few dictionaries, for tests of clients.

Only what clients see: queues that are lists of records, offsets, members of groups, locks. It
takes every request at its word, so a test can put it into any state.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.message.batch import decode_batch
from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import dlq_topic, retry_topic
from rocketmq_tw.message.properties import (
    RETRY_TOPIC,
    TAGS,
    join_properties,
    parse_properties,
)
from rocketmq_tw.message.record import decode_record, encode_record
from rocketmq_tw.message.sysflags import PULL_SUSPEND
from rocketmq_tw.message.tags import parse_tag_expression
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.consumers import ConsumerIdList
from rocketmq_tw.wire.bodies.heartbeat import HeartbeatData
from rocketmq_tw.wire.bodies.locks import LockBatchRequestBody, LockBatchResponseBody
from rocketmq_tw.wire.bodies.offsets import MessageQueue
from rocketmq_tw.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.clients import (
    GetConsumerListByGroupRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketmq_tw.wire.headers.namesrv import GetRouteInfoRequestHeader
from rocketmq_tw.wire.headers.offsets import (
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
from rocketmq_tw.wire.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rocketmq_tw.wire.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)

_MAX_MESSAGES = 32


class MemoryNameServer:
    """Routes of topics, as tests write them."""

    def __init__(self) -> None:
        self.routes: dict[str, TopicRouteData] = {}
        self.asked: list[str] = []

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route}

    def add(self, topic: str, address: str, name: str, queues: int, *, perm: int = 6) -> None:
        """`topic` has `queues` queues on the broker `name` at `address` as well."""
        route = self.routes.setdefault(topic, TopicRouteData())
        route.queue_datas.append(
            QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        )
        route.broker_datas.append(BrokerData(broker_name=name, broker_addrs={0: address}))

    def _route(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        topic = request.header(GetRouteInfoRequestHeader).topic
        self.asked.append(topic)
        route = self.routes.get(topic)
        if route is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"no route of {topic}")
        return request.response(body=encode_body(route))


class MemoryBroker:
    """One broker. `clock` None: pulls are never held."""

    def __init__(self, clock: IReactorTime | None, name: str = "broker-a") -> None:
        self.name = name
        self._clock = clock
        #: (topic, queue id) -> records.
        self.queues: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        #: (group, topic, queue id) -> committed offset.
        self.offsets: dict[tuple[str, str, int], int] = {}
        #: Group -> client id -> its connection.
        self.members: dict[str, dict[str, IPeer]] = defaultdict(dict)
        self.producers: dict[str, set[str]] = defaultdict(set)
        #: (group, topic, queue id) -> client id.
        self.locks: dict[tuple[str, str, int], str] = {}
        #: Headers of 36.
        self.sent_back: list[ConsumerSendMsgBackRequestHeader] = []
        #: Set to refuse or hold sends: called with each send's header.
        self.before_send: Callable[[SendMessageRequestHeaderV2], None] = lambda header: None
        self._held: list[tuple[RemotingCommand, Deferred[RemotingCommand]]] = []
        self._log: list[StoredMessage] = []

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.QUERY_CONSUMER_OFFSET: self._offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    def put(self, message: StoredMessage) -> None:
        """Stores one message and answers the pulls that wait for it."""
        queue = self.queues[message.topic, message.queue_id]
        message.queue_offset = len(queue)
        message.physical_offset = len(self._log)
        self._log.append(message)
        queue.append(encode_record(message))
        held, self._held = self._held, []
        for request, answer in held:
            response = self._read(request)
            if response.code == ResponseCode.SUCCESS:
                answer.callback(response)
            else:
                self._held.append((request, answer))

    def messages(self, topic: str) -> list[StoredMessage]:
        """All that was stored of a topic, in the order of arrival."""
        return [message for message in self._log if message.topic == topic]

    # Sending

    def _send(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        header = request.header(SendMessageRequestHeaderV2)
        self.before_send(header)
        properties = (header.properties or "").encode()
        parts = [(header.flag, request.body, properties)]
        if request.code == RequestCode.SEND_BATCH_MESSAGE:
            parts = [(each.flag, each.body, each.properties) for each in decode_batch(request.body)]
        first = len(self.queues[header.topic, header.queue_id])
        for flag, body, text in parts:
            self.put(
                StoredMessage(
                    topic=header.topic,
                    queue_id=header.queue_id,
                    body=body,
                    properties=text,
                    flag=flag,
                    sys_flag=header.sys_flag,
                    born_timestamp=header.born_timestamp,
                )
            )
        answer = SendMessageResponseHeader(
            msg_id=offset_message_id("127.0.0.1", 10911, len(self._log) - len(parts)),
            queue_id=header.queue_id,
            queue_offset=first,
        )
        return request.response(header=answer)

    def _send_back(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        header = request.header(ConsumerSendMsgBackRequestHeader)
        self.sent_back.append(header)
        original = self._log[header.offset]
        properties = parse_properties(original.properties)
        properties.setdefault(RETRY_TOPIC, original.topic)
        dead = header.delay_level < 0
        self.put(
            StoredMessage(
                topic=dlq_topic(header.group) if dead else retry_topic(header.group),
                queue_id=0,
                body=original.body,
                properties=join_properties(properties),
                sys_flag=original.sys_flag,
                reconsume_times=original.reconsume_times + 1,
            )
        )
        return request.response()

    # Pulling

    def _pull(self, request: RemotingCommand, peer: IPeer) -> Any:
        response = self._read(request)
        header = request.header(PullMessageRequestHeader)
        if (
            response.code != ResponseCode.PULL_NOT_FOUND
            or self._clock is None
            or not header.sys_flag & PULL_SUSPEND
        ):
            return response
        answer: Deferred[RemotingCommand] = Deferred()
        entry = (request, answer)
        self._held.append(entry)
        self._clock.callLater(header.suspend_timeout_millis / 1000, self._give_up, entry, response)
        return answer

    def _give_up(
        self,
        entry: tuple[RemotingCommand, Deferred[RemotingCommand]],
        response: RemotingCommand,
    ) -> None:
        if entry in self._held:
            self._held.remove(entry)
            entry[1].callback(response)

    def _read(self, request: RemotingCommand) -> RemotingCommand:
        header = request.header(PullMessageRequestHeader)
        records = self.queues[header.topic, header.queue_id]
        offset = header.queue_offset
        code, found, following = ResponseCode.SUCCESS, [], offset
        if offset > len(records):
            code, following = ResponseCode.PULL_OFFSET_MOVED, len(records)
        elif offset == len(records):
            code = ResponseCode.PULL_NOT_FOUND
        else:
            wanted = parse_tag_expression(header.subscription or "*")
            window = records[offset : offset + min(header.max_msg_nums, _MAX_MESSAGES)]
            following = offset + len(window)
            found = [record for record in window if wanted.matches(_tag(record))]
            if not found:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        answer = PullMessageResponseHeader(
            suggest_which_broker_id=0,
            next_begin_offset=following,
            min_offset=0,
            max_offset=len(records),
        )
        return request.response(code, header=answer, body=b"".join(found))

    # Groups

    def _heartbeat(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        data = decode_body(HeartbeatData, request.body)
        for producer in data.producer_data_set:
            self.producers[producer.group_name].add(data.client_id)
        for consumer in data.consumer_data_set:
            members = self.members[consumer.group_name]
            if data.client_id not in members:
                members[data.client_id] = peer
                self._tell_members(consumer.group_name)
        return request.response()

    def _unregister(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        header = request.header(UnregisterClientRequestHeader)
        if header.producer_group is not None:
            self.producers[header.producer_group].discard(header.client_id)
        if header.consumer_group is not None:
            self.members[header.consumer_group].pop(header.client_id, None)
            self._tell_members(header.consumer_group)
        return request.response()

    def _tell_members(self, group: str) -> None:
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
        for peer in self.members[group].values():
            peer.send_oneway(
                RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
            )

    def _members(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        group = request.header(GetConsumerListByGroupRequestHeader).consumer_group
        return request.response(
            body=encode_body(ConsumerIdList(consumer_id_list=list(self.members[group])))
        )

    def _lock(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        body = decode_body(LockBatchRequestBody, request.body)
        granted = [
            queue
            for queue in body.mq_set
            if self.locks.setdefault(self._lock_key(body, queue), body.client_id) == body.client_id
        ]
        return request.response(body=encode_body(LockBatchResponseBody(lock_ok_mq_set=granted)))

    def _unlock(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        body = decode_body(LockBatchRequestBody, request.body)
        for queue in body.mq_set:
            if self.locks.get(self._lock_key(body, queue)) == body.client_id:
                del self.locks[self._lock_key(body, queue)]
        return request.response()

    def _lock_key(self, body: LockBatchRequestBody, queue: MessageQueue) -> tuple[str, str, int]:
        return (body.consumer_group, queue.topic, queue.queue_id)

    # Offsets

    def _offset(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        header = request.header(QueryConsumerOffsetRequestHeader)
        offset = self.offsets.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None:
            raise RequestError(ResponseCode.QUERY_NOT_FOUND, "nothing was committed")
        return request.response(header=QueryConsumerOffsetResponseHeader(offset=offset))

    def _commit(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        header = request.header(UpdateConsumerOffsetRequestHeader)
        key = (header.consumer_group, header.topic, header.queue_id)
        self.offsets[key] = header.commit_offset
        return request.response()

    def _max_offset(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        header = request.header(GetMaxOffsetRequestHeader)
        offset = len(self.queues[header.topic, header.queue_id])
        return request.response(header=GetMaxOffsetResponseHeader(offset=offset))

    def _min_offset(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        request.header(GetMinOffsetRequestHeader)
        return request.response(header=GetMinOffsetResponseHeader(offset=0))

    def _search(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        header = request.header(SearchOffsetRequestHeader)
        times = [
            decode_record(record).store_timestamp
            for record in self.queues[header.topic, header.queue_id]
        ]
        offset = sum(1 for time in times if time < header.timestamp)
        return request.response(header=SearchOffsetResponseHeader(offset=offset))


def _tag(record: bytes) -> str | None:
    return parse_properties(decode_record(record).properties).get(TAGS)
