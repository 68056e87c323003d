"""Requests that move consumer offsets: 222 resets, 314 copies; 308 shows how far a reset may go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.broker.clients.registry import Client, ClientRegistry
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.net.changes import NAMED, changed, listed, who
from rocketmq_tw.net.growing_answers import GrowingAnswers
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.runtime.slices import every
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.queues import (
    CorrectionOffsetBody,
    MessageQueue,
    ResetOffsetBody,
    queue_offsets,
)
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
    ResetOffsetRequestHeader,
)

log = Logger()

LARGEST_LONG = 2**63 - 1


class ResetRequests:
    """Resets and copies a group's consumer offsets."""

    def __init__(
        self,
        config: BrokerConfig,
        tables: Tables,
        clients: ClientRegistry,
        store: IMessageStore,
        growing: GrowingAnswers,
    ) -> None:
        self._growing = growing
        self._config = config
        self._topics = tables.topics
        self._mappings = tables.mappings
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._clients = clients
        self._store = store

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction,
        }

    def reset(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 222: sets a group back or forth, to an offset in one queue or to a time in all.

        With useServerSideResetOffset the next pull of the group takes the offset up; without, the
        connected consumers are told (220) and commit it.
        """
        header = request.header(ResetOffsetRequestHeader)
        config = self._topics.known(header.topic)
        offsets: dict[int, int] = {}
        before: dict[int, int] = {}
        if self._config.use_server_side_reset_offset:
            steps = self._server_side(header, config, offsets, before)
        else:
            steps = self._client_side(header, config, offsets, before)

        def answer() -> RemotingCommand:
            log.info(
                "{peer} reset {group} in queues of {topic}: {offsets}",
                peer=who(peer),
                group=header.group,
                topic=header.topic,
                offsets=listed(_moves(offsets, before), len(offsets)),
            )
            body = {self._queue(header.topic, queue): offset for queue, offset in offsets.items()}
            return request.response(body=encode_body(ResetOffsetBody(offset_table=body)))

        return self._growing.after(steps, answer)

    def clone(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 314: copies a group's offsets in one topic or all to another group."""
        header = request.header(CloneGroupOffsetRequestHeader)
        source = header.src_group
        topics = {header.topic} if header.topic else self._offsets.topics_of(source)
        self._groups.check_made(header.dest_group)
        moves, number_of_moves = list[str](), 0
        connected = self._clients.consumer_group(source)

        def steps() -> Iterator[None]:
            for number, topic in enumerate(topics):
                gave_up = (
                    not header.offline
                    and connected is not None
                    and bool(connected.subscriptions)
                    and topic not in connected.subscriptions
                )
                if self._topics.get(topic) is not None and not gave_up:
                    note(topic)
                    self._offsets.clone(source, header.dest_group, topic)
                if every(number):
                    yield

        def note(topic: str) -> None:
            nonlocal number_of_moves
            offsets = self._offsets.of(source, topic)
            number_of_moves += len(offsets)
            told = _moves(offsets, self._offsets.of(header.dest_group, topic))
            moves.extend(f"{topic} {move}" for move in islice(told, NAMED - len(moves)))

        def answer() -> RemotingCommand:
            log.info(
                "{peer} copied the offsets of {source} to {target}: {offsets}",
                peer=who(peer),
                source=source,
                target=header.dest_group,
                offsets=listed(moves, number_of_moves),
            )
            return request.response()

        return self._growing.after(steps(), answer)

    def correction(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 308: the smallest readable offset of all groups in each queue; the largest long
        where the compared group is behind even that."""
        header = request.header(QueryCorrectionOffsetHeader)
        left_out = set((header.filter_groups or "").split(","))

        def fill(body: CorrectionOffsetBody) -> Iterator[None]:
            smallest, visited = body.correction_offsets, 0
            for group in self._offsets.groups_of(header.topic) - left_out:
                # A copy: the group goes on meanwhile.
                for queue_id, offset in list(self._offsets.of(group, header.topic).items()):
                    if offset >= self._store.min_queue_offset(header.topic, queue_id):
                        smallest[queue_id] = min(offset, smallest.get(queue_id, LARGEST_LONG))
                    visited += 1
                    if every(visited):
                        yield
            for queue_id, offset in self._offsets.of(header.compare_group, header.topic).items():
                if smallest.get(queue_id, LARGEST_LONG) > offset:
                    smallest[queue_id] = LARGEST_LONG

        return self._growing.answer(request, CorrectionOffsetBody, fill)

    def _server_side(
        self,
        header: ResetOffsetRequestHeader,
        config: TopicConfig,
        offsets: dict[int, int],
        before: dict[int, int],
    ) -> Iterator[None]:
        self._groups.check_known(header.group)
        if header.queue_id >= config.read_queue_nums:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"{header.topic} has no queue {header.queue_id}: give -1 for all of its"
                f" {config.read_queue_nums}",
            )
        if header.queue_id < 0:
            for queue_id in range(config.read_queue_nums):
                offsets[queue_id] = self._at_time(header.topic, queue_id, header.timestamp)
                if every(queue_id):
                    yield
        elif header.offset is None or header.offset == -1:
            at_time = self._at_time(header.topic, header.queue_id, header.timestamp)
            offsets[header.queue_id] = at_time
        else:
            first = self._store.min_queue_offset(header.topic, header.queue_id)
            end = self._store.max_queue_offset(header.topic, header.queue_id)
            if not max(first, 0) <= header.offset <= end + 1:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"offset {header.offset} is not in queue {header.queue_id}:"
                    f" give one from {first} to {end}",
                )
            offsets[header.queue_id] = header.offset
        begins: dict[int, int] = {}
        for number, item in enumerate(self._mappings.later_items(header.topic)):
            begins[item.queue_id] = item.start_offset
            if every(number):
                yield
        before.update(self._offsets.of(header.group, header.topic))
        for queue_id, offset in offsets.items():
            # At the begin of a later item the group is in front of it: an offset there would say
            # that it is done with the items before.
            kept = -1 if offset <= begins.get(queue_id, -1) else offset
            self._offsets.reset(header.group, header.topic, queue_id, kept)

    def _client_side(
        self,
        header: ResetOffsetRequestHeader,
        config: TopicConfig,
        offsets: dict[int, int],
        before: dict[int, int],
    ) -> Iterator[None]:
        clients = self._connected(header.group)
        if not clients:
            raise RequestError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"no consumer of group {header.group} is connected to this broker, so none can be"
                " reset: start one",
            )
        for queue_id in range(config.write_queue_nums):
            consumed = self._offsets.query(header.group, header.topic, queue_id)
            if consumed < 0:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"group {header.group} has no offset in queue {queue_id} of {header.topic}",
                )
            before[queue_id] = consumed
            wanted = self._at_time(header.topic, queue_id, header.timestamp)
            offsets[queue_id] = wanted if header.is_force else min(wanted, consumed)
            if every(queue_id):
                yield
        yield from self._tell(clients, header, offsets)

    def _tell(
        self, clients: list[Client], header: ResetOffsetRequestHeader, offsets: dict[int, int]
    ) -> Iterator[None]:
        table = {self._queue(header.topic, queue): offset for queue, offset in offsets.items()}
        bodies: dict[bool, bytes] = {}
        for number, client in enumerate(clients):
            is_java = client.language == "JAVA"
            if is_java not in bodies:
                told = ResetOffsetBody(offset_table=table) if is_java else queue_offsets(table)
                bodies[is_java] = encode_body(told)
            body = bodies[is_java]
            order = RemotingCommand.request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                ResetOffsetRequestHeader(
                    topic=header.topic, group=header.group, timestamp=header.timestamp
                ),
                body,
                oneway=True,
            )
            client.peer.send_oneway(order)
            if every(number):
                yield

    def _at_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Returns the offset of the first message stored at or after a time in milliseconds; the
        queue's end for a negative one, as in stock."""
        if timestamp < 0:
            return self._store.max_queue_offset(topic, queue_id)
        return max(0, self._store.offset_by_time(topic, queue_id, timestamp))

    def _connected(self, group: str) -> list[Client]:
        found = self._clients.consumer_group(group)
        return [] if found is None else list(found.clients.values())

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic=topic, broker_name=self._config.broker_name, queue_id=queue_id)


def _moves(offsets: Mapping[int, int], before: Mapping[int, int]) -> Iterator[str]:
    """Yields how the offset of each queue moves."""
    for queue_id, offset in offsets.items():
        yield f"{queue_id}: {changed(offset, before.get(queue_id))}"
