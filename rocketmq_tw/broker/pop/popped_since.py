"""Moves groups' offsets behind what was popped since they were written, or copied.

A kill takes back what a group's offset gained since it was in the file, and a new master has what
it copied last from the former one. But each pop stands in the revive topic with the part of the
queue that it took (docs/formats/pop.md, "After a kill"), in the order of the log. So the pops are
gone through once more: each that begins no later than the group is by then moves it to its end, and
each mark of a group that was put back moves it back. A group without an offset begins at the first
message that there is. Where there is a gap the group stays in front of it: what lies there may not
have been popped. Only what a master itself wrote counts: other brokers send check points to the
revive topic too, and anybody may. What was popped and not acknowledged comes again by its check
point; what cannot be told for sure is popped again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from operator import attrgetter

from rocketmq_tw.broker.pop.check_points import (
    CHECK_POINT_TAG,
    PUT_BACK_TAG,
    PoppedQueue,
    claimed_part,
    popped_offsets,
)
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.store.queue_batches import batches
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.pop import PopCheckPoint, PutBack
from rocketmq_tw.wire.errors import BodyError

#: Messages that are looked at in one step, and in all: with more of them nothing is moved.
_STEP = 100
_MOST_MESSAGES = 1_000_000


class PoppedSince:
    """Moves `offsets`, which are as of the place `begin` of the log of `store`, in `steps`. All of
    the log is in the queues by then, and nothing is popped meanwhile."""

    def __init__(
        self,
        store: IMessageStore,
        offsets: OffsetTable,
        topic: str,
        own_name: str,
        begin: int,
        exists: Callable[[str, str, int], bool],
    ) -> None:
        """`topic` is the revive topic, `own_name` the broker's; `exists` tells whether topic, group
        and queue id are such as may be popped."""
        self._store = store
        self._offsets = offsets
        self._topic = topic
        self._own_name = own_name
        self._begin = begin
        self._exists = exists
        #: How far groups are, of those that popped.
        self._reached: dict[PoppedQueue, int] = {}
        #: Queues in which the log says that a group was put back; it may be so in front of its
        #: offset too.
        self._marked: set[PoppedQueue] = set()
        self._put_back: set[PoppedQueue] = set()
        #: Groups whose offsets were removed.
        self._removed: set[str] = set()
        self._is_whole = True
        #: In how many queues a group was moved.
        self.count = 0

    def put_back(self, group: str, topic: str, queue_id: int) -> None:
        """Notes that a group is put back while the steps are made; see `OffsetTable`."""
        self._put_back.add((topic, group, queue_id))

    def steps(self, queue_ids: Iterable[int]) -> Iterator[None]:
        """Yields the steps of the work, to be done in slices; `queue_ids` are the revive queues.
        Nothing is moved where not all of them can be read."""
        streams = [self._messages(queue_id) for queue_id in queue_ids]
        for count, message in enumerate(merge(*streams, key=attrgetter("physical_offset")), 1):
            if count > _MOST_MESSAGES:
                return
            self._see(message)
            if count % _STEP == 0:
                yield
        if not self._is_whole:
            return
        for count, (queue, offset) in enumerate(self._reached.items(), 1):
            self._move(queue, offset)
            if count % _STEP == 0:
                yield

    def _messages(self, queue_id: int) -> Iterator[StoredMessage]:
        store, topic = self._store, self._topic
        offset = store.queue_end_at(topic, queue_id, self._begin)
        end = store.max_queue_offset(topic, queue_id)
        if offset is None:
            return
        for read in batches(store, topic, queue_id, offset, end):
            yield from decode_records(read.data)
            offset = read.next_offset
        if offset < end:
            self._is_whole = False

    def _see(self, message: StoredMessage) -> None:
        if message.born_host != message.store_host:
            # A client sent it.
            return
        properties = parse_properties(message.properties)
        tag = properties.get(props.TAGS)
        if tag == PUT_BACK_TAG:
            try:
                self._go_back(decode_body(PutBack, message.body))
            except BodyError:
                self._is_whole = False
        elif tag == CHECK_POINT_TAG:
            part = claimed_part(properties)
            if part is not None:
                try:
                    point = decode_body(PopCheckPoint, message.body)
                except BodyError:
                    # The revival passes over it too.
                    return
                self._go_on(point, part, message.physical_offset)

    def _go_back(self, back: PutBack) -> None:
        if back.topic:
            queue = back.topic, back.group or "", back.queue_id
            if self._exists(*queue):
                is_new = back.group in self._removed and queue not in self._reached
                at = back.offset if is_new else self._at(queue)
                self._reached[queue] = min(at, back.offset)
                self._marked.add(queue)
            return
        group = back.group or ""
        self._removed.add(group)
        for queue in [queue for queue in self._reached if queue[1] == group]:
            del self._reached[queue]
            self._marked.discard(queue)

    def _go_on(self, point: PopCheckPoint, part: tuple[int, int], place: int) -> None:
        begin, end = part
        queue = point.topic or "", point.group or "", point.queue_id
        found = popped_offsets(point)
        if point.broker_name != self._own_name or not self._exists(*queue) or not found:
            return
        if not 0 <= begin <= min(found) <= max(found) < end or begin > self._at(queue):
            return
        # A topic that was made anew has other messages there, or none.
        units = self._store.queue_units(queue[0], queue[2], end - 1, 1)
        if units and units[0].position < place:
            self._reached[queue] = end
            if point.group in self._removed:
                self._marked.add(queue)

    def _at(self, queue: PoppedQueue) -> int:
        """Returns where the group is by now."""
        at = self._reached.get(queue)
        if at is not None:
            return at
        if queue[1] in self._removed:
            return self._store.min_queue_offset(queue[0], queue[2])
        return self._known(queue)

    def _known(self, queue: PoppedQueue) -> int:
        topic, group, queue_id = queue
        known = self._offsets.of(group, topic).get(queue_id)
        return self._store.min_queue_offset(topic, queue_id) if known is None else known

    def _move(self, queue: PoppedQueue, offset: int) -> None:
        topic, group, queue_id = queue
        if queue in self._put_back or ("", group, -1) in self._put_back:
            return
        known = self._known(queue)
        # Behind the queue's end it is of a former topic of that name.
        is_wrong = known > self._store.max_queue_offset(topic, queue_id)
        if known < offset or (offset < known and (is_wrong or queue in self._marked)):
            self._offsets.commit(group, topic, queue_id, offset, "the broker")
            self.count += 1
