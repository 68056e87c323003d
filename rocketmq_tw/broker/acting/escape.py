"""Puts the messages that an acting master makes into the log of another master.

Its own log stays a copy of its master's, so due delays and timers, check points of pops, revived
and settled messages go to a living master of another group of the cluster, as a producer's would.
Documents: "Slave Acting Master", escape of secondary messages; request and answer: 310 in
docs/formats/remoting.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence, Set

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from zope.interface import implementer

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.writing.commit import STORED
from rocketmq_tw.broker.writing.sink import IMessageSink, PutResult
from rocketmq_tw.client.routes import publish_queues_at_brokers
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.ids import parse_offset_message_id
from rocketmq_tw.message.layout import V6_FLAGS
from rocketmq_tw.message.model import TRANSACTION_PREPARED, StoredMessage, transaction_value
from rocketmq_tw.message.names import AUTO_CREATE_TOPIC, RETRY_PREFIX
from rocketmq_tw.message.properties import join_properties, parse_properties
from rocketmq_tw.message.room import MOST_SENT_PROPERTIES
from rocketmq_tw.store.interface import Appended
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader

#: Other brokers that one put tries, one after the other; the next put goes on with others.
MOST_TRIES = 3

log = Logger()


@implementer(IMessageSink)
class EscapeBridge:
    """Puts messages into a living master of another group, those of a topic into one and the same
    while it lives: check points and acknowledgements of pops have to meet there, and messages of
    one queue stay in order. A
    master of the same container comes first, and without the network where it is in this process;
    without enableRemoteEscape there is no other.

    A put that failed in the middle may be stored by that master, and is tried at another one: each
    message escapes at least once.
    """

    is_one_log = False

    def __init__(self, host: Host, brokers: BrokerClient) -> None:
        self._config = host.config
        self._now_ms = host.now_ms
        self._brokers = brokers
        self._neighbours = host.neighbours
        #: The name of the broker that took the last message of each topic.
        self._preferred: dict[str, str] = {}
        #: The name of the broker that a put of each topic tries behind the first one.
        self._second: dict[str, str] = {}
        #: How many messages other brokers took.
        self.escaped = 0

    def put(self, message: StoredMessage, *, wait: bool = False) -> Deferred[PutResult]:
        """See `IMessageSink`; `wait` has no meaning, since the other broker answers once it keeps
        its promises. Fails with SYSTEM_BUSY where no broker takes the message now."""
        if not self._config.enable_remote_escape and not self._other_masters():
            return fail(
                RequestError(
                    ResponseCode.SERVICE_NOT_AVAILABLE,
                    "this broker acts for its master and gives no messages to other brokers:"
                    " enableRemoteEscape=true allows it",
                )
            )
        return Deferred.fromCoroutine(self._put(message))

    def at_turn_end(
        self, compose: Callable[[], StoredMessage | None]
    ) -> Deferred[PutResult | None]:
        """Fails: what belongs to the same write as another message has no place elsewhere."""
        return fail(
            RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "this broker acts for its master: its log takes nothing",
            )
        )

    async def _put(self, message: StoredMessage) -> PutResult:
        reasons: list[str] = []
        result = await self._try(self._near_queues(message), message, reasons)
        if result is None:
            result = await self._try(await self._queues(message), message, reasons)
        if result is not None:
            self.escaped += 1
            return result
        why = "; ".join(reasons) or "no other group has a master that may be written to"
        raise RequestError(
            ResponseCode.SYSTEM_BUSY, f"no broker takes a message of {message.topic}: {why}"
        )

    async def _try(
        self, queues: Sequence[MessageQueue], message: StoredMessage, reasons: list[str]
    ) -> PutResult | None:
        """Returns what the first queue that takes the message said; None where none of those that
        are tried does, with why in `reasons`."""
        queues = self._to_try(message.topic, queues)
        for queue in queues[:MOST_TRIES]:
            try:
                result = await self._send(message, queue)
            except RequestError as error:
                reasons.append(f"{queue.broker_name}: {error.remark}")
            else:
                name, preferred = queue.broker_name, self._preferred
                if name != preferred.get(message.topic):
                    if name not in preferred.values():
                        log.info(
                            "what this broker makes while it acts for its master goes to broker"
                            " {name}",
                            name=name,
                        )
                    preferred[message.topic] = name
                return result
        if len(queues) > MOST_TRIES:
            self._second[message.topic] = queues[MOST_TRIES].broker_name
        return None

    def _to_try(self, topic: str, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Returns the queues in the order to try them in: the first one stays the first, and then
        those that the last put which failed did not come to."""
        names = [queue.broker_name for queue in queues]
        second = self._second.get(topic)
        if second not in names[1:]:
            return queues
        at = names.index(second)
        return [queues[0], *queues[at:], *queues[1:at]]

    def _near_queues(self, message: StoredMessage) -> Sequence[MessageQueue]:
        """Returns a queue of each master in this process that has the topic: no name server need
        tell."""
        found = {}
        for name in self._other_masters():
            number = self._neighbours.write_queues(name, message.topic)
            if number:
                queue_id = max(message.queue_id, 0) % number
                found[name] = MessageQueue(topic=message.topic, broker_name=name, queue_id=queue_id)
        return self._in_order(message.topic, found)

    async def _queues(self, message: StoredMessage) -> Sequence[MessageQueue]:
        """Returns a queue of each other broker that may take the message, the one to try first
        first."""
        topic, number = message.topic, max(message.queue_id, 0)
        route = await self._brokers.find_route(topic)
        found = self._others(topic, route, number)
        is_static = route is not None and bool(route.topic_queue_mapping_by_broker)
        if not found and not is_static:
            # No other broker has the topic yet: it makes it as for a producer.
            cluster = self._config.broker_cluster_name
            found = self._others(cluster, await self._brokers.find_route(cluster), 0)
        return self._in_order(topic, found)

    def _in_order(self, topic: str, found: Mapping[str, MessageQueue]) -> Sequence[MessageQueue]:
        """Returns the queues of brokers by name, masters of the same container first."""
        near, preferred = self._other_masters() & found.keys(), self._preferred.get(topic)
        names = self._turned(near, preferred) + self._turned(found.keys() - near, preferred)
        return [found[name] for name in names]

    def _turned(self, names: Set[str], preferred: str | None) -> list[str]:
        """Names in a lasting order that begins with `preferred`, where that is one of them."""
        ordered = sorted(names)
        if not ordered:
            return []
        # Brokers that act at the same time do not all choose the same one.
        first = zlib.crc32(self._config.broker_name.encode()) % len(ordered)
        if preferred is not None and preferred in names:
            first = ordered.index(preferred)
        return ordered[first:] + ordered[:first]

    def _other_masters(self) -> set[str]:
        """Names of other groups that have a master in the same container."""
        return set(self._neighbours.masters()) - {self._config.broker_name}

    def _others(
        self, topic: str, route: TopicRouteData | None, number: int
    ) -> dict[str, MessageQueue]:
        """Returns the name of each broker to which messages may go -> its queue of this number, or
        another one where it has fewer."""
        if route is None:
            return {}
        own, near = self._config.broker_name, self._other_masters()
        may_go_far = self._config.enable_remote_escape
        by_broker: dict[str, list[int]] = {}
        for queue in publish_queues_at_brokers(topic, route):
            name = queue.broker_name
            if name in near or (may_go_far and name != own):
                by_broker.setdefault(name, []).append(queue.queue_id)
        return {
            name: MessageQueue(topic=topic, broker_name=name, queue_id=ids[number % len(ids)])
            for name, ids in by_broker.items()
        }

    async def _send(self, message: StoredMessage, queue: MessageQueue) -> PutResult:
        header = self._header(message, queue)
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, message.body)
        asked = self._neighbours.ask(queue.broker_name, request)
        if asked is None:
            answer = await self._brokers.ask(
                queue.broker_name, queue.topic, request.code, header, message.body
            )
        else:
            answer = await asked
        if answer.code not in STORED:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"code {answer.code}, {answer.remark or 'no remark'}"
            )
        return PutResult(ResponseCode(answer.code), self._place(answer))

    def _header(self, message: StoredMessage, queue: MessageQueue) -> SendMessageRequestHeaderV2:
        config, properties = self._config, parse_properties(message.properties)
        # A due message keeps what it waited by, and a send would make it wait again.
        if props.REAL_TOPIC in properties:
            properties.pop(props.DELAY, None)
        if transaction_value(message.sys_flag) != TRANSACTION_PREPARED:
            properties.pop(props.TRAN_MSG, None)
        if len(join_properties(properties)) > MOST_SENT_PROPERTIES:
            # Its sender left no room: rather without them than never.
            for name in (props.TIMER_ENQUEUE_MS, props.TIMER_DEQUEUE_MS):
                properties.pop(name, None)
        return SendMessageRequestHeaderV2(
            producer_group=properties.get(props.PGROUP)
            or f"InnerProducerGroup_{config.broker_name}_{config.broker_id}",
            topic=message.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=config.default_topic_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=message.sys_flag & ~V6_FLAGS,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=join_properties(properties).decode(),
            reconsume_times=message.reconsume_times,
            # The consumer that gave it back said that it comes again, and may have more tries than
            # others.
            max_reconsume_times=(
                message.reconsume_times + 1 if message.topic.startswith(RETRY_PREFIX) else None
            ),
            broker_name=queue.broker_name,
        )

    def _place(self, answer: RemotingCommand) -> Appended:
        header = answer.header(SendMessageResponseHeader)
        try:
            offset = parse_offset_message_id(header.msg_id).offset
        except ValueError:
            offset = -1
        return Appended(offset, offset, header.queue_offset, self._now_ms(), header.msg_id)
