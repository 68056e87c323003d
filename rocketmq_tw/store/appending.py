"""Appending: messages get their places, become records, and are buffered in the log until they
are written together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from struct import pack

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.interpreter import IS_PYPY
from rocketmq_tw.memo import remembered
from rocketmq_tw.message.batch import Batch
from rocketmq_tw.message.model import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, StoredMessage
from rocketmq_tw.message.names import LMQ_PREFIX
from rocketmq_tw.message.record import RecordError, encode_batch_records, encode_record, host_bytes
from rocketmq_tw.store.consume_queue import ConsumeQueue
from rocketmq_tw.store.contents import StoreContents
from rocketmq_tw.store.dispatching import Dispatching
from rocketmq_tw.store.errors import IllegalMessageError, NotWritableError, StoreError
from rocketmq_tw.store.interface import Appended
from rocketmq_tw.store.multi_dispatch import MultiDispatch, has_offsets

#: What a record may have beside its body.
_RECORD_ROOM = 64 * 1024
#: A clock that was set back by less than this does not show in store times.
_CLOCK_SLACK_MS = 1_000
#: No queue of a topic is made by a message's property where there are so many.
_MOST_QUEUES = 100_000
#: Writes the offset in an id; a specifier in an f-string takes PyPy more than twice the time.
_hex_digits = "%016X".__mod__
_PREPARED_OR_ROLLBACK = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


@remembered(64)
def _message_id_prefix(host: tuple[str, int]) -> str:
    return (host_bytes(host[0]) + host[1].to_bytes(4, "big")).hex().upper()


def _message_ids(prefix: str, offsets: Sequence[int]) -> str:
    """Returns the ids of a batch's messages, as its answer has them."""
    if IS_PYPY:
        # With a layout for so many numbers it takes more than twice the time.
        return ",".join([prefix + _hex_digits(offset) for offset in offsets])
    text = pack(f">{len(offsets)}q", *offsets).hex(",", 8).upper()
    return prefix + text.replace(",", "," + prefix)


class Appending:
    """`last_timestamp` is the store time of the last message; `clock` gives milliseconds since
    1970."""

    def __init__(
        self,
        config: MessageStoreConfig,
        contents: StoreContents,
        dispatching: Dispatching,
        clock: Callable[[], int],
        multi_dispatch: MultiDispatch | None = None,
    ) -> None:
        """`multi_dispatch`: messages may name further queues."""
        self.last_timestamp = 0
        self._config = config
        self._log = contents.log
        self._front = contents.log.front_size
        self._queues = contents.queues
        self._dispatching = dispatching
        self._maker = dispatching.maker
        self._clock = clock
        self._multi_dispatch = multi_dispatch
        #: Queues that an append not yet written moved on, and their next offset before it.
        self._moved: list[tuple[ConsumeQueue, int]] = []
        #: Behind a replica's last bytes, or records that recovery did not dispatch; until they are
        #: dispatched next offsets are not known.
        self._raw_end = 0

    def begin(self, last_timestamp: int, undispatched_end: int) -> None:
        """Where recovery left off: `undispatched_end` is behind records whose queues do not have
        them yet, so that next offsets are not known; 0 where they have all."""
        self.last_timestamp, self._raw_end = last_timestamp, undispatched_end

    def append(self, message: StoredMessage, batch: Batch | None) -> Appended:
        """See `IMessageStore.append`."""
        if self._dispatching.reached < self._raw_end:
            raise NotWritableError("messages of the log are not dispatched yet: try again")
        log = self._log
        in_queue = (message.sys_flag & TRANSACTION_ROLLBACK) not in _PREPARED_OR_ROLLBACK
        try:
            queue = self._queues.find_or_create(message.topic, message.queue_id)
            if queue.failure:
                self._write_out(queue)
            now, last = self._clock(), self.last_timestamp
            message.store_timestamp = last if 0 < last - now < _CLOCK_SLACK_MS else now
            message.queue_offset = queue.next_offset if in_queue else 0
            message.physical_offset = log.end_offset + self._front
            further: Sequence[ConsumeQueue] = ()
            if self._multi_dispatch is not None:
                further = self._further_queues(self._multi_dispatch, message, batch, in_queue)
            prefix = _message_id_prefix(message.store_host)
            if not batch:
                self._push(message)
                count, ids = 1, prefix + _hex_digits(message.physical_offset)
            else:
                offsets = self._push_batch(message, batch, in_queue)
                count, ids = len(offsets), _message_ids(prefix, offsets)
        except RecordError as error:
            raise IllegalMessageError(str(error)) from error
        self.last_timestamp = message.store_timestamp
        if in_queue:
            self._moved.append((queue, message.queue_offset))
            queue.next_offset += count
            for other in further:
                self._moved.append((other, other.next_offset))
                other.next_offset += 1
        return Appended(
            message.physical_offset,
            log.end_offset,
            message.queue_offset,
            message.store_timestamp,
            ids,
        )

    def _further_queues(
        self,
        multi_dispatch: MultiDispatch,
        message: StoredMessage,
        batch: Batch | None,
        in_queue: bool,
    ) -> list[ConsumeQueue]:
        """Returns the queues beside its own that the message gets into, each once; its properties
        say then at which offset."""
        if batch is not None:
            if has_offsets(batch.common) or any(map(has_offsets, batch.properties)):
                raise IllegalMessageError(
                    "a message of a batch may not say where it stands in further queues:"
                    " send single messages"
                )
            return []
        if not in_queue:
            return []
        self._check_number(multi_dispatch.named_later(message))
        named = multi_dispatch.named(message)
        if not named:
            if multi_dispatch.further(message.topic, message.queue_id, message.properties):
                message.properties = multi_dispatch.without_offsets(message.properties)
                message.parsed = None
            return []
        if not message.was_stored:
            # What was taken before must not wait for others to go.
            self._check_number(named)
        queues = {key: self._further_queue(*key) for key in named}
        message.properties = multi_dispatch.with_offsets(
            message.properties, [queues[key].next_offset for key in named]
        )
        message.parsed = None
        return list(queues.values())

    def _check_number(self, named: Sequence[tuple[str, int]]) -> None:
        """Raises `NotWritableError` where these would be too many queues."""
        queues = self._queues
        made = {key for key in named if queues.find(*key) is None}
        light = sum(topic.startswith(LMQ_PREFIX) for topic, _ in made)
        if (light and queues.light + light > self._config.max_lmq_consume_queue_num) or (
            light < len(made) and len(queues) + len(made) > _MOST_QUEUES
        ):
            raise NotWritableError(
                f"{len(made)} queues ({light} light ones) are not made: there are {queues.light}"
                f" light queues (maxLmqConsumeQueueNum) and {len(queues)} queues in all"
            )

    def _further_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = self._queues.find_or_create(topic, queue_id)
        if queue.failure:
            self._write_out(queue)
        return queue

    def _write_out(self, queue: ConsumeQueue) -> None:
        """The queue could not be written: takes a message for it only if it can be by now."""
        try:
            queue.write_out()
        except OSError as error:
            raise NotWritableError(
                f"queue {queue.queue_id} of {queue.topic} cannot be written: {error}"
            ) from error

    def _push(self, message: StoredMessage) -> None:
        """Buffers the record, which says where it stands, as `message` does then."""
        log = self._log
        record = encode_record(message, crc_property=self._config.enabled_append_prop_crc)
        size = len(record)
        if size > self._config.max_message_size:
            self._check_size(message, len(message.body), size)
        # Nearly always there is room, and the record need not be made again.
        if not log.push_fitting(record):
            message.physical_offset = log.reserve(size)
            record = encode_record(message, crc_property=self._config.enabled_append_prop_crc)
            log.push(record)
        dispatching = self._dispatching
        if not dispatching.from_log:
            dispatching.wait(
                self._maker.of_record(
                    message.topic,
                    message.queue_id,
                    message.queue_offset,
                    message.physical_offset,
                    size,
                    message.sys_flag,
                    message.store_timestamp,
                    message.properties,
                    message.parsed,
                )
            )
        message.store_size = size

    def _push_batch(self, message: StoredMessage, batch: Batch, in_queue: bool) -> tuple[int, ...]:
        """Buffers the records of a batch; returns the offset of each."""
        log = self._log
        data, sizes = self._batch_records(message, batch, in_queue)
        if self._front:
            offsets = tuple(log.push_each(data, sizes))
            message.physical_offset = offsets[0]
        else:
            if not log.push_fitting(data):
                message.physical_offset = log.reserve(len(data))
                data, sizes = self._batch_records(message, batch, in_queue)
                log.push(data)
            offsets = tuple(accumulate(sizes[:-1], initial=message.physical_offset))
        if not self._dispatching.from_log:
            self._dispatching.wait_all(self._maker.of_batch(message, batch, offsets, sizes))
        message.store_size = sizes[0]
        return offsets

    def _batch_records(
        self, message: StoredMessage, batch: Batch, in_queue: bool
    ) -> tuple[bytes, list[int]]:
        """Returns the records of a batch, none larger than allowed, and their sizes."""
        data, sizes = encode_batch_records(
            message, batch, in_queue=in_queue, crc_property=self._config.enabled_append_prop_crc
        )
        self._check_size(message, max(map(len, batch.bodies)), max(sizes))
        return data, sizes

    def _check_size(self, message: StoredMessage, body_length: int, size: int) -> None:
        # What comes out of the log was accepted once: a limit that was lowered since spares it.
        most = max(self._config.max_message_size, message.store_size)
        if body_length > most or size > most + _RECORD_ROOM:
            raise IllegalMessageError(
                f"the message has {body_length} bytes of body, {size} in all: "
                f"maxMessageSize allows {most}"
            )

    def append_raw(self, offset: int, data: bytes) -> None:
        """See `IMessageStore.append_raw`. An empty log begins where its first bytes belong, if a
        file can start there."""
        log = self._log
        if offset != log.end_offset:
            if log.end_offset != log.min_offset:
                raise StoreError(f"the log ends at {log.end_offset}: bytes for {offset} do not fit")
            log.start_at(offset)
            self._dispatching.reached = offset
        log.push_raw(data)
        self._raw_end = log.end_offset
        self._dispatching.read_from_log()

    def log_grew(self) -> None:
        """Notes that the log got records that were not appended here; until they are dispatched
        next offsets are not known."""
        self._raw_end = self._log.end_offset
        self._dispatching.read_from_log()

    def write(self) -> int:
        """See `IMessageStore.write_pending`; where it raises, none of what was buffered is in the
        store."""
        log = self._log
        try:
            written = log.write()
        except StoreError:
            self._take_back(log.written_offset)
            raise
        self._moved.clear()
        return written

    def _take_back(self, end: int) -> None:
        """Takes the queues' next offsets back, since the log lost what was buffered behind
        `end`."""
        for queue, offset in reversed(self._moved):
            queue.next_offset = offset
        self._moved.clear()
        self._raw_end = min(self._raw_end, end)
        self._dispatching.take_back(end)

    def cut(self, offset: int) -> None:
        """Notes that the log and the queues end at `offset` now; nothing is buffered any more."""
        self._moved.clear()
        # What is not dispatched yet is read from the log, and next offsets are not known before.
        self._raw_end = offset
