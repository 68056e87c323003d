"""Arrow batches of the columns that a read wants, out of the records of one queue."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_tw.client.decoding import decode_messages
from rocketmq_tw.message.properties import TAGS
from rocketmq_tw.message.tags import TagExpression
from rocketmq_tw.spark.columnar import Columns, Problems, columnar, from_messages
from rocketmq_tw.spark.options import Damaged
from rocketmq_tw.wire.bodies.queues import MessageQueue

#: Columns that need a message's properties.
_OF_PROPERTIES = frozenset({"properties", "keys", "tags", "msgId"})
#: Name in the schema to the method of `Columns` that makes it.
_COLUMN = {
    "flag": "flag",
    "body": "body",
    "properties": "properties",
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "bornTimestamp": "born_timestamp",
    "storeTimestamp": "store_timestamp",
    "keys": "keys",
    "tags": "tags",
    "msgId": "message_id",
    "problem": "problem",
}


class BatchBuilder:
    """Makes batches of the columns of `schema` from records of one queue.

    `seen` counts the messages that were wanted, also those that `damaged` leaves out.
    """

    def __init__(
        self,
        schema: pa.Schema,
        queue: MessageQueue,
        wanted: TagExpression,
        damaged: Damaged = Damaged.FAIL,
    ) -> None:
        self.seen = 0
        self._schema = schema
        self._queue = queue
        self._wanted = wanted
        self._damaged = damaged
        self._with_properties = bool(wanted.tags) or not _OF_PROPERTIES.isdisjoint(schema.names)

    def batch(self, records: bytes, end: int, offset_delta: int | None = None) -> pa.RecordBatch:
        """Returns the messages in `records` with a queue offset before `end` and a tag that is
        wanted; of a logic queue, whose offsets are `offset_delta` above those of the records.

        Raises `BodyError` for a damaged record; with other choices of `damaged` than FAIL only
        where it is more than the body that is damaged.
        """
        columns = self._columns(records)
        if offset_delta is not None:
            columns.place(self._queue.queue_id, offset_delta)
        keep = columns.queue_offsets < end
        if self._wanted.tags:
            tags = pc.is_in(columns.property(TAGS), pa.array(sorted(self._wanted.tags)))
            keep &= tags.to_numpy(zero_copy_only=False)
        self.seen += int(np.count_nonzero(keep))
        if self._damaged is Damaged.ONLY:
            keep &= columns.is_damaged
            if not keep.any():
                return pa.RecordBatch.from_pylist([], self._schema)
        count = len(keep)
        arrays = [self._array(field, columns, count) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return batch if keep.all() else batch.filter(pa.array(keep))

    def _columns(self, records: bytes) -> Columns:
        problems: Problems | None = None if self._damaged is Damaged.FAIL else {}
        columns = columnar(records, with_properties=self._with_properties, problems=problems)
        if columns is None:
            problems = None if problems is None else {}
            columns = from_messages(decode_messages(records, self._queue, problems), problems)
        return columns

    def _array(self, field: pa.Field, columns: Columns, count: int) -> pa.Array:
        if field.name == "topic":
            return pa.repeat(pa.scalar(self._queue.topic, field.type), count)
        if field.name == "brokerName":
            return pa.repeat(pa.scalar(self._queue.broker_name, field.type), count)
        array = getattr(columns, _COLUMN[field.name])()
        return array if array.type == field.type else array.cast(field.type)
