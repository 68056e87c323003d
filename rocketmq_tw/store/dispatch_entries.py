"""Reads what a record means to consume queues and index (docs/formats/consumequeue.md,
docs/formats/index.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter

from rocketmq_tw.interpreter import IS_PYPY
from rocketmq_tw.message.batch import Batch
from rocketmq_tw.message.model import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, StoredMessage
from rocketmq_tw.message.names import SCHEDULE_TOPIC
from rocketmq_tw.message.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.message.tags import java_hash_code
from rocketmq_tw.store.multi_dispatch import FurtherUnit, MultiDispatch
from rocketmq_tw.structs import msgspec

_UNIQUE_ID = b"UNIQ_KEY\x01"
_KEY_SEPARATOR = KEY_SEPARATOR.encode()
#: Of the largest number that a long holds.
_MOST_DIGITS = 19
#: What queue and index want of the properties.
_TAGS, _UNIQ_KEY, _KEYS = b"\x02TAGS\x01", b"\x02UNIQ_KEY\x01", b"\x02KEYS\x01"
#: Finds name and value of each of these, of properties behind a separator.
_wanted = re.compile(rb"\x02(TAGS|UNIQ_KEY|KEYS)\x01([^\x02]*)").findall
#: Keys of messages of a batch that go into the index in one go; with more each goes by itself.
MOST_BATCH_KEYS = 8192


class DispatchEntry(msgspec.Struct, gc=False):
    """One record on its way to its queue and into the index; `keys` are the index's."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    in_queue: bool
    keys: tuple[bytes, ...]
    properties: bytes = b""
    count: int = 1
    #: Units beside its own (`multi_dispatch`).
    further: tuple[FurtherUnit, ...] = ()

    @property
    def tags_codes(self) -> tuple[int]:
        """Returns the message's tag code in a list of one, so that a `BatchEntry` can be used
        alike."""
        return (self.tags_code,)

    def properties_of(self, number: int) -> bytes:
        """Returns the message's properties, as a `BatchEntry` gives each one's."""
        return self.properties


class BatchEntry(msgspec.Struct, gc=False):
    """Records of one batch on their way, `count` of them, all in their queue: they stand one after
    the other in the log at `offsets` and have consecutive queue offsets. `size` is of all; `keys`
    are in the order of the records. Each has properties of its own and those in common."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp: int
    offsets: Sequence[int]
    sizes: Sequence[int]
    tags_codes: Sequence[int]
    keys: Sequence[bytes]
    count: int
    properties: Sequence[bytes] = ()
    common: bytes = b""
    in_queue: bool = True
    further: tuple[FurtherUnit, ...] = ()
    #: For each key the offset of its record; None where each record has one key, or none has.
    key_offsets: Sequence[int] | None = None

    def properties_of(self, number: int) -> bytes:
        """Returns the properties of one of the messages, counted from 0."""
        return self.properties[number] + self.common

    def one_by_one(self) -> Iterator[DispatchEntry]:
        """Yields an entry for each record."""
        columns = zip(self.offsets, self.sizes, self.tags_codes, strict=True)
        keys: dict[int, list[bytes]] = {}
        for key, offset in zip(self.keys, self.key_offsets or self.offsets, strict=False):
            keys.setdefault(offset, []).append(key)
        for number, (offset, size, tags_code) in enumerate(columns):
            yield DispatchEntry(
                self.topic,
                self.queue_id,
                self.queue_offset + number,
                offset,
                size,
                tags_code,
                self.store_timestamp,
                True,
                tuple(keys.get(offset, ())),
                self.properties_of(number) if self.properties else b"",
            )


AnyDispatchEntry = DispatchEntry | BatchEntry


def property_value(properties: bytes, name: bytes) -> bytes:
    """Returns one property's value without parsing the others; empty where it is missing.

    `name` ends with the separator 0x01.
    """
    if properties.startswith(name):
        start = len(name)
    else:
        start = properties.find(b"\x02" + name)
        if start < 0:
            return b""
        start += len(name) + 1
    end = properties.find(b"\x02", start)
    return properties[start:] if end < 0 else properties[start:end]


def _value_behind(properties: bytes, name: bytes, otherwise: bytes = b"") -> bytes:
    """Returns one property's value, `otherwise` where it is missing. `name` and properties begin
    with the separator 0x02, and `name` ends with 0x01."""
    start = properties.find(name)
    if start < 0:
        return otherwise
    start += len(name)
    end = properties.find(b"\x02", start)
    return properties[start:] if end < 0 else properties[start:end]


def _differing_ids(messages: Sequence[bytes]) -> list[bytes] | None:
    """Returns the unique ids of several messages, by their properties, where these are the same but
    for them, as in most batches; None where more differs, or there are none."""
    first = messages[0]
    unique_id = property_value(first, _UNIQUE_ID)
    if not unique_id:
        return None
    start = len(_UNIQUE_ID)
    if not first.startswith(_UNIQUE_ID):
        start += first.index(b"\x02" + _UNIQUE_ID) + 1
    end = start + len(unique_id)
    in_front, behind = first[:start], first[end:]
    ids = list(map(itemgetter(slice(start, end)), messages))
    if (
        b"\x02" in b"".join(ids)
        or set(map(len, messages)) != {len(first)}
        or b"".join(messages) != in_front + (behind + in_front).join(ids) + behind
    ):
        return None
    return ids


#: Of the messages of a batch: the codes of their tags, their keys, and the keys' offsets as in a
#: `BatchEntry`.
_Columns = tuple[list[int], Sequence[bytes], Sequence[int] | None]


class EntryMaker:
    """Makes entries of records; knows the delay levels and whether an index is kept."""

    def __init__(
        self,
        delay_levels: tuple[int, ...],
        *,
        index: bool,
        multi_dispatch: MultiDispatch | None = None,
    ) -> None:
        self._delay_levels = delay_levels
        self._index = index
        self._multi_dispatch = multi_dispatch

    def of_record(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        size: int,
        sys_flag: int,
        store_timestamp: int,
        properties: bytes,
        parsed: dict[str, str] | None = None,
    ) -> DispatchEntry:
        """Returns the entry of one record. Half and rolled-back messages of a transaction are in no
        queue, as in stock. `parsed` tells what it can instead of `properties`, see
        `StoredMessage`."""
        transaction = sys_flag & TRANSACTION_ROLLBACK
        tags_code = 0
        keys: tuple[bytes, ...] = ()
        if parsed is not None and topic != SCHEDULE_TOPIC:
            if (tags_text := parsed.get(TAGS)) is not None:
                tags_code = java_hash_code(tags_text)
            if self._index and transaction != TRANSACTION_ROLLBACK:
                unique_id, keys_text = parsed.get(UNIQ_KEY), parsed.get(KEYS)
                if unique_id is not None:
                    keys = (unique_id.encode(),)
                if keys_text is not None:
                    keys += _words(keys_text.encode())
        elif properties:
            if b"TAGS\x01" in properties and (tags := property_value(properties, b"TAGS\x01")):
                tags_code = java_hash_code(str(tags, "utf-8", "replace"))
            if topic == SCHEDULE_TOPIC:
                tags_code = self._deliver_time(properties, store_timestamp, tags_code)
            if self._index and transaction != TRANSACTION_ROLLBACK:
                unique = property_value(properties, b"UNIQ_KEY\x01")
                keys = (unique,) if unique else ()
                if b"KEYS\x01" in properties:
                    keys += _words(property_value(properties, b"KEYS\x01"))
        entry = DispatchEntry(
            topic,
            queue_id,
            queue_offset,
            physical_offset,
            size,
            tags_code,
            store_timestamp,
            transaction != TRANSACTION_PREPARED and transaction != TRANSACTION_ROLLBACK,
            keys,
            properties,
        )
        if self._multi_dispatch is not None and entry.in_queue:
            entry.further = self._multi_dispatch.further(topic, queue_id, properties)
        return entry

    def of_head(self, head: RecordHead) -> DispatchEntry:
        """Returns the entry of a record that was read."""
        return self.of_record(
            head.topic,
            head.queue_id,
            head.queue_offset,
            head.physical_offset,
            head.size,
            head.sys_flag,
            head.store_timestamp,
            head.properties,
        )

    def of_batch(
        self,
        message: StoredMessage,
        batch: Batch,
        offsets: Sequence[int],
        sizes: Sequence[int],
    ) -> list[DispatchEntry] | list[BatchEntry]:
        """Entries for a batch whose first message is `message` and whose records stand at
        `offsets`: mostly one for all of them."""
        properties, common = batch.properties, batch.common
        topic, sys_flag = message.topic, message.sys_flag
        if topic != SCHEDULE_TOPIC and not sys_flag & TRANSACTION_ROLLBACK:
            columns = None
            if not IS_PYPY or self._multi_dispatch is not None:
                columns = self._columns_alike(properties, common)
            if columns is None and self._multi_dispatch is None:
                make = self._columns_in_a_loop if IS_PYPY else self._columns
                columns = make(properties, common, offsets)
            if columns is not None:
                tags_codes, keys, key_offsets = columns
                return [
                    BatchEntry(
                        topic,
                        message.queue_id,
                        message.queue_offset,
                        offsets[0],
                        offsets[-1] + sizes[-1] - offsets[0],
                        message.store_timestamp,
                        offsets,
                        sizes,
                        tags_codes,
                        keys,
                        len(sizes),
                        properties,
                        common,
                        key_offsets=key_offsets,
                    )
                ]
        return [
            self.of_record(
                topic,
                message.queue_id,
                message.queue_offset + number,
                offset,
                size,
                sys_flag,
                message.store_timestamp,
                each + common,
            )
            for number, (offset, size, each) in enumerate(
                zip(offsets, sizes, properties, strict=True)
            )
        ]

    def _columns_alike(self, properties: Sequence[bytes], common: bytes) -> _Columns | None:
        """Returns tags and keys of a batch whose messages differ in their unique ids only; None
        for every other one."""
        ids = _differing_ids(properties)
        if ids is None:
            return None
        alike = self.of_record("", 0, 0, 0, 0, 0, 0, properties[0] + common)
        if len(alike.keys) > 1:
            return None
        return [alike.tags_code] * len(ids), ids if alike.keys else (), None

    def _columns(
        self, properties: Sequence[bytes], common: bytes, offsets: Sequence[int]
    ) -> _Columns | None:
        """Returns tags and keys of any batch; None where it has too many keys."""
        tags_codes: list[int] = []
        keys: list[bytes] = []
        key_offsets: list[int] = []
        every = [_wanted(b"\x02" + each) for each in properties]
        of_all = _wanted(b"\x02" + common)
        if not of_all and (columns := self._columns_of_like_names(every, offsets)) is not None:
            return columns
        codes: dict[bytes | None, int] = {None: 0, b"": 0}
        for offset, each in zip(offsets, every, strict=True):
            # The first one counts of several with one name.
            found = dict(reversed(each + of_all))
            tags = found.get(b"TAGS")
            if tags not in codes:
                codes[tags] = java_hash_code(str(tags or b"", "utf-8", "replace"))
            tags_codes.append(codes[tags])
            if not self._index:
                continue
            if unique_id := found.get(b"UNIQ_KEY"):
                keys.append(unique_id)
                key_offsets.append(offset)
            if text := found.get(b"KEYS"):
                words = _words(text)
                keys += words
                key_offsets += [offset] * len(words)
                if len(keys) > MOST_BATCH_KEYS:
                    return None
        return tags_codes, keys, key_offsets

    def _columns_in_a_loop(
        self, properties: Sequence[bytes], common: bytes, offsets: Sequence[int]
    ) -> _Columns | None:
        """Returns tags and keys of any batch, in a fifth of the time that `_columns` takes PyPy;
        None where it has too many keys."""
        of_all = b"\x02" + common
        tags_of_all, unique_id_of_all, keys_of_all = (
            _value_behind(of_all, name) for name in (_TAGS, _UNIQ_KEY, _KEYS)
        )
        tags_codes: list[int] = []
        keys: list[bytes] = []
        key_offsets: list[int] = []
        known, code = b"", 0
        for each, offset in zip(properties, offsets, strict=True):
            own = b"\x02" + each
            tags = _value_behind(own, _TAGS, tags_of_all)
            if tags != known:
                known, code = tags, java_hash_code(str(tags, "utf-8", "replace"))
            tags_codes.append(code)
            if not self._index:
                continue
            unique_id = _value_behind(own, _UNIQ_KEY, unique_id_of_all)
            if unique_id:
                keys.append(unique_id)
                key_offsets.append(offset)
            for word in _words(_value_behind(own, _KEYS, keys_of_all)):
                keys.append(word)
                key_offsets.append(offset)
            if len(keys) > MOST_BATCH_KEYS:
                return None
        return tags_codes, keys, key_offsets

    def _columns_of_like_names(
        self, every: Sequence[Sequence[tuple[bytes, bytes]]], offsets: Sequence[int]
    ) -> _Columns | None:
        """Returns tags and keys of a batch of which `every` message has the same wanted properties
        in the same order, each once, and one key at most; None for every other one."""
        names = [name for name, _ in every[0]]
        width, count = len(names), len(every)
        flat = list(chain.from_iterable(every))
        if (
            len(set(names)) != width
            or set(map(len, every)) != {width}
            or [name for name, _ in flat] != names * count
        ):
            return None
        values = {name: [value for _, value in flat[n::width]] for n, name in enumerate(names)}
        tags_codes = [0] * count
        if tags := values.pop(b"TAGS", None):
            codes = {tag: java_hash_code(str(tag, "utf-8", "replace")) for tag in set(tags)}
            tags_codes = list(map(codes.__getitem__, tags))
        if not self._index or not values:
            return tags_codes, [], []
        words = values.get(b"KEYS", ())
        columns = [values[name] for name in (b"UNIQ_KEY", b"KEYS") if name in values]
        keys, key_offsets = [b""] * (count * len(columns)), [0] * (count * len(columns))
        for n, column in enumerate(columns):
            keys[n :: len(columns)] = column
            key_offsets[n :: len(columns)] = offsets
        if len(keys) > MOST_BATCH_KEYS or b"" in keys or _KEY_SEPARATOR in b"".join(words):
            return None
        return tags_codes, keys, key_offsets

    def _deliver_time(self, properties: bytes, store_timestamp: int, otherwise: int) -> int:
        delay = property_value(properties, b"DELAY\x01")
        # Python reads no longer ones, and no level has them.
        if not delay.isdigit() or len(delay) > _MOST_DIGITS or int(delay) < 1:
            return otherwise
        level = min(int(delay), len(self._delay_levels))
        return store_timestamp + self._delay_levels[level - 1]


def _words(keys: bytes) -> tuple[bytes, ...]:
    if _KEY_SEPARATOR not in keys:
        return (keys,) if keys else ()
    return tuple(filter(None, keys.split(_KEY_SEPARATOR)))
