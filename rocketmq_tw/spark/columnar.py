"""Records of a log as Arrow columns, column by column instead of message by message.

A Python loop over messages would be the limit of a read. So only the records' sizes are walked
in Python; fixed fields are read by one strided look at all heads, and what has a length becomes
an Arrow binary array over the same bytes, from which bodies and properties are taken. Records
that are not of the usual form (an IPv6 host, a long topic, damaged lengths) go through
`decode_messages`, which also says what is wrong with a damaged one.
"""

import zlib
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.message.compression import compression_type, decompress
from rocketmq_tw.message.layout import MAGIC_V1, SIZE, V4_COLUMNS, V6_FLAGS
from rocketmq_tw.message.model import COMPRESSED
from rocketmq_tw.message.properties import KEYS, TAGS, UNIQ_KEY
from rocketmq_tw.wire.errors import BodyError

_HEAD = np.dtype(V4_COLUMNS)
_HEAD_SIZE = _HEAD.itemsize
# In each record: head, body, topic's length, topic, properties' length, properties.
_PARTS = 6
_BODY, _PROPERTIES = 1, 5
# The separators of properties.
_MIDDLE, _END = 1, 2
# A table of messages by names may have so many places for each property that there is.
_WIDEST = 8


#: What is wrong with damaged bodies, by the number of their message.
Problems = dict[int, str]


class Entries(NamedTuple):
    """The properties of some messages after each other; `offsets` says where each message's
    begin, and the end of the last one's."""

    names: pa.DictionaryArray
    values: pa.Array
    offsets: np.ndarray


class Columns:
    """The columns of some records."""

    def __init__(
        self,
        heads: np.ndarray,
        bodies: pa.Array,
        entries: Entries,
        problems: Problems | None = None,
        fallback_ids: "list[str] | None" = None,
    ) -> None:
        self._problems = problems or {}
        self._heads = heads
        self._bodies = bodies
        self._names, self._values, self._offsets = entries
        self._fallback_ids = fallback_ids

    def place(self, queue_id: int, offset_delta: int) -> None:
        """Moves the messages to another queue, where their offsets are by `offset_delta` larger."""
        self._heads = self._heads.copy()
        self._heads["queue_id"] = queue_id
        self._heads["queue_offset"] += offset_delta

    @property
    def queue_offsets(self) -> np.ndarray:
        return self._heads["queue_offset"]

    @property
    def is_damaged(self) -> np.ndarray:
        return np.isin(np.arange(len(self._heads)), list(self._problems))

    def problem(self) -> pa.Array:
        return pa.array(map(self._problems.get, range(len(self._heads))), pa.string())

    def flag(self) -> pa.Array:
        return pa.array(self._heads["flag"].astype(np.int32))

    def queue_id(self) -> pa.Array:
        return pa.array(self._heads["queue_id"].astype(np.int32))

    def queue_offset(self) -> pa.Array:
        return pa.array(self._heads["queue_offset"].astype(np.int64))

    def born_timestamp(self) -> pa.Array:
        return _timestamps(self._heads["born_timestamp"])

    def store_timestamp(self) -> pa.Array:
        return _timestamps(self._heads["store_timestamp"])

    def body(self) -> pa.Array:
        return self._bodies

    def properties(self) -> pa.Array:
        return pa.MapArray.from_arrays(
            pa.array(self._offsets.astype(np.int32)),
            self._names.dictionary_decode(),
            self._values,
        )

    def property(self, name: str) -> pa.Array:
        """Returns the values of one property, null where a message has it not."""
        code = pc.index(self._names.dictionary, name).as_py()
        found = np.flatnonzero(self._names.indices.to_numpy() == code)
        rows = np.searchsorted(self._offsets, found, side="right") - 1
        places = np.full(len(self._heads), -1, dtype=np.int64)
        places[rows] = found
        return self._values.take(pa.array(places, mask=places < 0))

    def keys(self) -> pa.Array:
        return pc.split_pattern(self.property(KEYS), " ")

    def tags(self) -> pa.Array:
        return self.property(TAGS)

    def message_id(self) -> pa.Array:
        ids = self.property(UNIQ_KEY)
        if not ids.null_count:
            return ids
        if self._fallback_ids is not None:
            return pc.coalesce(ids, pa.array(self._fallback_ids, pa.string()))
        # Address, port and log offset stand in the head as the offset id has them in hex.
        hosts = self._heads["store_host"].tobytes().hex().upper()
        logs = self._heads["physical_offset"].tobytes().hex().upper()
        offset_ids = [hosts[at : at + 16] + logs[at : at + 16] for at in range(0, len(hosts), 16)]
        return pc.coalesce(ids, pa.array(offset_ids, pa.string()))


def columnar(
    records: bytes, *, with_properties: bool = True, problems: Problems | None = None
) -> Columns | None:
    """Returns the columns of records of the usual form; None where one is not. Without properties
    there are none, and nothing that is one of them.

    A body whose CRC is wrong or that cannot be unpacked raises `BodyError`; with `problems` it is
    left as it is, and what is wrong is noted there.
    """
    starts = _starts(records)
    if starts is None or not len(starts):
        return None
    raw = np.frombuffer(records, np.uint8)
    heads = np.lib.stride_tricks.sliding_window_view(raw, _HEAD_SIZE)[starts].view(_HEAD)[:, 0]
    if ((heads["magic"] != MAGIC_V1) | (heads["sys_flag"] & V6_FLAGS != 0)).any():
        return None
    edges = _edges(raw, starts, heads)
    if edges is None:
        return None
    parts = pa.Array.from_buffers(
        pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(records)]
    )
    at = np.arange(len(starts)) * _PARTS
    bodies = _bodies(parts.take(pa.array(at + _BODY)), heads, problems)
    if not with_properties:
        nothing = pa.array([], pa.string())
        none = np.zeros(len(starts) + 1, np.int64)
        return Columns(heads, bodies, Entries(nothing.dictionary_encode(), nothing, none), problems)
    entries = _entries(parts.take(pa.array(at + _PROPERTIES)))
    return None if entries is None else Columns(heads, bodies, entries, problems)


def _starts(records: bytes) -> np.ndarray | None:
    """Returns where each record begins; None where the sizes do not lead to the end."""
    starts: list[int] = []
    position, end = 0, len(records)
    size_at, add = SIZE.unpack_from, starts.append
    while position + _HEAD_SIZE < end:
        (size,) = size_at(records, position)
        if size <= _HEAD_SIZE:
            return None
        add(position)
        position += size
    return np.array(starts, np.int64) if position == end else None


def _edges(raw: np.ndarray, starts: np.ndarray, heads: np.ndarray) -> np.ndarray | None:
    """Returns where the parts of all records meet, int32; None where one does not fit its
    record."""
    ends = starts + heads["size"]
    bodies = starts + _HEAD_SIZE
    topic_lengths = bodies + heads["body_length"]
    if (heads["body_length"] < 0).any() or (topic_lengths + 3 > ends).any():
        return None
    topics = topic_lengths + 1
    property_lengths = topics + raw[topic_lengths]
    if (property_lengths + 2 > ends).any():
        return None
    lengths = raw[property_lengths].astype(np.int64) << 8 | raw[property_lengths + 1]
    properties = property_lengths + 2
    if (properties + lengths != ends).any():
        return None
    edges = np.empty((len(starts), _PARTS), np.int32)
    for index, part in enumerate(
        (starts, bodies, topic_lengths, topics, property_lengths, properties)
    ):
        edges[:, index] = part
    return np.append(edges.ravel(), np.int32(len(raw)))


def _bodies(bodies: pa.Array, heads: np.ndarray, problems: Problems | None) -> pa.Array:
    """Returns the bodies, checked and unpacked."""

    def damaged(row: int, why: str) -> None:
        if problems is None:
            raise BodyError(
                f"the message at queue offset {heads['queue_offset'][row]} is damaged: {why};"
                " set damagedMessages=keep to read it as it is"
            )
        problems[row] = why

    values = bodies.to_pylist()
    crc32 = zlib.crc32
    sums = np.fromiter(map(crc32, values), np.uint32, len(values)) & 0x7FFFFFFF
    bad = np.flatnonzero((sums != heads["body_crc"]) & (heads["body_length"] > 0))
    for row in bad.tolist():
        damaged(row, "the CRC is not its body's")
    packed = np.setdiff1d(np.flatnonzero(heads["sys_flag"] & COMPRESSED), bad)
    if not len(packed):
        return bodies
    for row in packed.tolist():
        try:
            kind = compression_type(int(heads["sys_flag"][row]))
            assert kind is not None
            values[row] = decompress(values[row], kind)
        except ValueError as error:
            damaged(row, str(error))
    return pa.array(values, pa.binary())


def _entries(texts: pa.Array) -> "Entries | None":
    """Returns all properties; None where a text is not plainly name 0x01 value 0x02 in UTF-8."""
    try:
        texts = texts.cast(pa.string())
    except pa.ArrowInvalid:
        return None
    raw, edges = _contents(texts)
    if len(raw) and (raw[edges[1:] - 1] != _END).any():
        # Stock 5.x leaves out the last separator.
        texts = pc.if_else(
            pc.or_(pc.ends_with(texts, "\x02"), pc.equal(texts, "")),
            texts,
            pc.binary_join_element_wise(texts, "\x02", ""),
        )
        raw, edges = _contents(texts)
    middles, ends = np.flatnonzero(raw == _MIDDLE), np.flatnonzero(raw == _END)
    starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    if len(middles) != len(ends) or (starts >= middles).any() or (middles + 1 >= ends).any():
        return None
    cuts = np.empty((len(ends), 4), np.int32)
    for index, cut in enumerate((starts, middles, middles + 1, ends)):
        cuts[:, index] = cut
    pieces = pa.Array.from_buffers(
        pa.string(),
        cuts.size,
        [None, pa.py_buffer(np.append(cuts.ravel(), np.int32(len(raw)))), texts.buffers()[2]],
    )
    at = np.arange(len(ends)) * 4
    names = pieces.take(pa.array(at)).dictionary_encode()
    offsets = np.searchsorted(ends, edges)
    chosen = _last_ones(names, offsets)
    if chosen is not None:
        at = at[chosen]
        names = names.take(pa.array(chosen))
        offsets = np.searchsorted(chosen, offsets)
    return Entries(names, pieces.take(pa.array(at + 2)), offsets)


def _contents(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bytes of all texts and where each begins, with the end of the last one."""
    _, offsets, data = texts.buffers()
    edges = np.frombuffer(offsets, np.int32, len(texts) + 1)
    return np.frombuffer(data or b"", np.uint8, edges[-1]), edges


def _last_ones(names: pa.DictionaryArray, offsets: np.ndarray) -> np.ndarray | None:
    """Returns the entries that count where messages have a name twice, in order; None where none
    has.

    Messages sent in a batch have some twice: their own and the batch's. The last one counts.
    """
    messages, kinds = len(offsets) - 1, max(1, len(names.dictionary))
    rows = np.repeat(np.arange(messages), np.diff(offsets))
    marks = rows * kinds + names.indices.to_numpy()
    if messages * kinds <= _WIDEST * len(marks):
        places = np.full(messages * kinds, -1)
        # Of equal indices the last assignment stays.
        places[marks] = np.arange(len(marks))
        last = places[places >= 0]
    else:
        _, from_end = np.unique(marks[::-1], return_index=True)
        last = len(marks) - 1 - from_end
    if len(last) == len(marks):
        return None
    counts = np.zeros(len(marks), bool)
    counts[last] = True
    return np.flatnonzero(counts)


def from_messages(messages: list[ReceivedMessage], problems: Problems | None) -> Columns:
    """Returns the columns of `messages`, a row for each. `problems` says by row what is wrong with
    a body; None where nothing is."""
    heads = np.zeros(len(messages), _HEAD)
    names: list[str] = []
    values: list[str] = []
    offsets = [0]
    for row, message in enumerate(messages):
        head = heads[row]
        head["queue_id"] = message.queue.queue_id
        head["flag"] = message.flag
        head["queue_offset"] = message.queue_offset
        head["born_timestamp"] = message.born_timestamp
        head["store_timestamp"] = message.store_timestamp
        names += message.properties.keys()
        values += message.properties.values()
        offsets.append(len(names))
    return Columns(
        heads,
        pa.array([message.body for message in messages], pa.binary()),
        Entries(
            pa.array(names, pa.string()).dictionary_encode(),
            pa.array(values, pa.string()),
            np.array(offsets, np.int64),
        ),
        problems,
        [message.offset_message_id for message in messages],
    )


def _timestamps(milliseconds: np.ndarray) -> pa.Array:
    return pa.array(milliseconds.astype(np.int64) * 1000).cast(pa.timestamp("us", tz="UTC"))
