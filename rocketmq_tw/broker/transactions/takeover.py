"""Finds out, when a broker becomes the master, which half messages wait.

Half messages that no op message names wait. But the message that settled one stands in front of its
op message, and a crash may have come between the two; stock leaves seconds between them, and writes
no op message for a half message that it puts back. So the log is looked at too, from the first half
message that seems to wait: what is found there settles it, and gets its op message now
(docs/formats/transactions.md, "What is promised").
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted.logger import Logger

from rocketmq_tw.broker.transactions.book import HalfBook, State
from rocketmq_tw.broker.transactions.halves import QUEUE, Half, settled_offsets
from rocketmq_tw.broker.transactions.progress import SettledProgress
from rocketmq_tw.message.model import TRANSACTION_COMMIT, StoredMessage, transaction_value
from rocketmq_tw.message.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from rocketmq_tw.message.record import decode_record, decode_records
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.store.queue_batches import batches, next_batch

#: Records of the log that are looked at in one step.
LOG_STEP = 64

log = Logger()


class Takeover:
    """Fills `book`; `steps` is to be gone through in slices.

    Afterwards `waiting` has the half messages that wait, by offset, and `found` those that the log
    says are settled though no op message does. Where the progress was copied, or is ahead of a
    queue, all half messages are looked at again that were stored within `margin_ms` of the last.
    Any number may wait: their bodies are there only `with_bodies`.
    """

    def __init__(
        self,
        store: IMessageStore,
        progress: SettledProgress,
        margin_ms: int,
        *,
        with_bodies: bool = False,
    ) -> None:
        self._store = store
        self._progress = progress
        self._margin_ms = margin_ms
        self._with_bodies = with_bodies
        self.book = HalfBook(0)
        self.waiting: dict[int, Half] = {}
        self.found: list[tuple[int, State]] = []
        self._by_origin: dict[int, Half] = {}
        self._by_unique_id: dict[str, Half] = {}
        #: The first op message that was read.
        self.op_offset = 0
        self._read_to = 0

    def steps(self) -> Iterator[None]:
        """Raises what reading the store raises; then another `Takeover` is needed."""
        self._begin()
        yield
        yield from self._read_ops()
        yield from self._read_halves()
        yield from self._look_at_log()
        yield from self._read_halves()
        # Those that came since the last step; nothing is decided before this is over.
        for _ in self._read_halves():
            pass

    def _begin(self) -> None:
        start, op_start = self._progress.start(HALF_TOPIC), self._progress.start(OP_HALF_TOPIC)
        if start is None or op_start is None or self._progress.is_copied:
            start, op_start = self._move_start_back(start, op_start)
        self.book = HalfBook(start)
        self.op_offset = op_start
        self._read_to = start

    def _move_start_back(self, start: int | None, op_start: int | None) -> tuple[int, int]:
        """Returns where to look again from: op messages from behind the first half message on."""
        store = self._store
        end = store.max_queue_offset(HALF_TOPIC, QUEUE)
        last = store.store_time(HALF_TOPIC, QUEUE, end - 1) if end else -1
        since = store.offset_by_time(HALF_TOPIC, QUEUE, last - self._margin_ms) if last > 0 else 0
        since = max(since, store.min_queue_offset(HALF_TOPIC, QUEUE))
        start = since if start is None else min(start, since)
        op_end = store.max_queue_offset(OP_HALF_TOPIC, QUEUE)
        units = store.queue_units(HALF_TOPIC, QUEUE, start, 1)
        if units:
            behind = store.queue_end_at(OP_HALF_TOPIC, QUEUE, units[0].position)
            op_since = op_end if behind is None else behind
        else:
            op_since = op_end
        op_since = max(op_since, store.min_queue_offset(OP_HALF_TOPIC, QUEUE))
        return start, op_since if op_start is None else min(op_start, op_since)

    def _read_ops(self) -> Iterator[None]:
        store, book = self._store, self.book
        for read in batches(store, OP_HALF_TOPIC, QUEUE, self.op_offset):
            for op in decode_records(read.data):
                named = settled_offsets(op)
                end = store.max_queue_offset(HALF_TOPIC, QUEUE)
                for half_offset in named:
                    # An offset that no half message has would grow the book without end.
                    if half_offset < end:
                        book.settle(half_offset, State.SETTLED, written=True)
                book.op_written(op.queue_offset, max(named, default=-1))
            yield

    def _read_halves(self) -> Iterator[None]:
        store, book = self._store, self.book
        book.learn(store.max_queue_offset(HALF_TOPIC, QUEUE))
        while True:
            offset = book.next_pending(self._read_to)
            if offset >= book.end:
                end = store.max_queue_offset(HALF_TOPIC, QUEUE)
                if end == book.end:
                    self._read_to = book.end
                    return
                book.learn(end)
                continue
            # Those that are settled are passed over, so the next batch does not begin at the end of
            # the last one. One that cannot be read waits no more.
            read, after = next_batch(store, HALF_TOPIC, QUEUE, offset), offset + 1
            if read is not None:
                for message in decode_records(read.data):
                    if book.is_pending(message.queue_offset):
                        if not self._with_bodies:
                            message.body = b""
                        self._inherit(Half(message))
                after = read.next_offset
            self._settle_unread(offset, after)
            self._read_to = after
            yield

    def _inherit(self, half: Half) -> None:
        if not half.is_whole:
            log.error(
                "half message {offset} does not say for which queue it is, and is skipped",
                offset=half.offset,
            )
            self.book.settle(half.offset, State.SETTLED, written=True)
            return
        if half.is_copy:
            former = self._original_of(half)
            if former is not None:
                self._settled(former.offset, State.MOVED)
            self.book.moved(half.origin, half.offset)
        self.waiting[half.offset] = self._by_origin[half.origin] = half
        if half.unique_id:
            self._by_unique_id[half.unique_id] = half

    def _original_of(self, other: Half) -> Half | None:
        """Returns the waiting one of which `other` is a copy; copies of stock's name no origin."""
        if other.names_origin:
            return self._by_origin.get(other.origin)
        return self._by_unique_id.get(other.unique_id)

    def _settle_unread(self, offset: int, end: int) -> None:
        """Settles those that were not among the records read: the log has them no more."""
        while (offset := self.book.next_pending(offset)) < min(end, self.book.end):
            if offset not in self.waiting:
                self.book.settle(offset, State.SETTLED, written=True)
            offset += 1

    def _look_at_log(self) -> Iterator[None]:
        if not self.waiting:
            return
        start = min(half.message.physical_offset for half in self.waiting.values())
        for count, head in enumerate(self._store.records(start)):
            if transaction_value(head.sys_flag) == TRANSACTION_COMMIT:
                self._found_in_log(head.physical_offset, State.COMMITTED)
            elif head.topic == TRANS_CHECK_MAX_TIME_TOPIC:
                self._found_in_log(head.physical_offset, State.GIVEN_UP)
            if not count % LOG_STEP:
                yield

    def _found_in_log(self, position: int, state: State) -> None:
        record = self._store.record_at(position)
        if record is None:
            return
        message = decode_record(record)
        if state is State.GIVEN_UP:
            half = self._original_of(Half(message))
            if half is not None and half.message.physical_offset > position:
                # An administrator had it put back since.
                return
        else:
            half = self._half_of(message)
        if half is not None:
            self._settled(half.offset, state)

    def _half_of(self, message: StoredMessage) -> Half | None:
        """Returns the half message that seems to wait though it became `message`."""
        record = self._store.record_at(message.prepared_transaction_offset)
        if record is None:
            return None
        half = Half(decode_record(record))
        if half.message.topic != HALF_TOPIC:
            return None
        return self.waiting.get(self.book.current(half.origin, half.offset))

    def _settled(self, offset: int, state: State) -> None:
        half = self.waiting.pop(offset, None)
        if half is not None:
            self.book.settle(offset, state)
            self._by_origin.pop(half.origin, None)
            self._by_unique_id.pop(half.unique_id, None)
            if state is not State.MOVED:
                self.book.forget_copies(half.origin)
            self.found.append((offset, state))
