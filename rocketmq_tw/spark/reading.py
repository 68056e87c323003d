"""Reads a range in a worker: pulls until the end, follows a broker that fails over, and never
passes over a message in silence."""

from collections.abc import Iterator

import pyarrow as pa

from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.client.blocking_connection import ConnectionFailed
from rocketmq_tw.client.errors import BrokerError, NoRouteError
from rocketmq_tw.client.message import PulledBytes, PullStatus
from rocketmq_tw.message.tags import SUBSCRIBE_ALL, TAG_TYPE, parse_tag_expression
from rocketmq_tw.spark.batches import BatchBuilder
from rocketmq_tw.spark.errors import DataLossError
from rocketmq_tw.spark.offsets import queue_text
from rocketmq_tw.spark.options import ConnectionOptions, SourceOptions
from rocketmq_tw.spark.ranges import OffsetRange
from rocketmq_tw.spark.waiting import Backoff
from rocketmq_tw.wire.codes import ResponseCode

#: Records in a batch: enough that Arrow's costs for each batch vanish.
_BATCH_BYTES = 4 * 1024 * 1024
#: Answers of a broker that starts, stops or is too busy.
_PASSING = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.GO_AWAY,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
    }
)

_clients: dict[tuple[ConnectionOptions, str, float, int], BlockingClient] = {}


def worker_client(
    connection: ConnectionOptions, group: str, timeout: float, send_retries: int = 2
) -> BlockingClient:
    """Returns the client of this worker process, kept from task to task."""
    key = (connection, group, timeout, send_retries)
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = connection.client(group, timeout, send_retries)
    return client


def is_passing(error: Exception) -> bool:
    """Returns whether the same request may be answered a little later."""
    if isinstance(error, BrokerError):
        return error.code in _PASSING
    return isinstance(error, ConnectionFailed | NoRouteError)


def read_range(
    options: SourceOptions, part: OffsetRange, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Returns the messages of `part` that the subscription wants, in batches.

    Raises `DataLossError` where `failOnDataLoss` and some are gone, what the client raised where
    a broker stays away, `BodyError` for a damaged record.
    """
    return _RangeReader(options, part, schema).batches()


class _RangeReader:
    def __init__(self, options: SourceOptions, part: OffsetRange, schema: pa.Schema) -> None:
        self._options = options
        self._part = part
        self._queue = part.queue
        self._subscription = options.subscription
        self._client = worker_client(options.connection, options.group, options.pull_timeout)
        wanted = SUBSCRIBE_ALL
        if self._subscription.expression_type == TAG_TYPE:
            wanted = self._subscription.expression
        self._builder = BatchBuilder(
            schema, self._queue, parse_tag_expression(wanted), options.damaged
        )
        self._backoff = Backoff(options.broker_down_timeout)
        self._position = part.start
        #: Offsets of a logic queue that no message has, since it moved there.
        self._left_out = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        held: list[bytes] = []
        size = 0
        delta: int | None = None
        while self._position < self._part.end:
            records, of_pull = self._next()
            if records and of_pull != delta:
                # The queue has moved in between: other offsets stand in the records.
                if held:
                    yield self._batch(held, delta)
                held, size, delta = [], 0, of_pull
            if records:
                held.append(records)
                size += len(records)
            if size >= _BATCH_BYTES:
                yield self._batch(held, delta)
                held, size = [], 0
        if held:
            yield self._batch(held, delta)
        self._check_all_came()

    def _batch(self, held: list[bytes], delta: int | None) -> pa.RecordBatch:
        return self._builder.batch(b"".join(held), self._part.end, delta)

    def _check_all_came(self) -> None:
        seen, count = self._builder.seen, self._part.count - self._left_out
        if not self._subscription.is_filtered and seen != count:
            self._lost(f"{count - seen} of {count} messages are gone")

    def _next(self) -> tuple[bytes, int | None]:
        """Returns the records of one pull, and by how much their offsets are larger in the queue;
        moves on to where the next one goes on."""
        pulled = self._pull()
        if pulled.status is PullStatus.FOUND or (
            pulled.status is PullStatus.NO_MATCHED_MESSAGE and pulled.next_offset > self._position
        ):
            self._backoff.worked()
            if pulled.status is not PullStatus.FOUND and pulled.begins_item:
                self._left_out += min(pulled.next_offset, self._part.end) - self._position
            self._position = max(pulled.next_offset, self._position + 1)
            return pulled.records, pulled.offset_delta
        if self._position < pulled.min_offset:
            self._lost(f"its oldest offset is {pulled.min_offset}, not {self._position}")
            self._position = pulled.min_offset
        elif not self._backoff.pause():
            # A replica that took over may be behind for a while, but not for ever.
            self._lost(f"it ends at {pulled.max_offset}, before {self._position}")
            self._position = self._part.end
        return b"", None

    def _pull(self) -> PulledBytes:
        while True:
            try:
                return self._client.pull_bytes(
                    self._queue,
                    self._position,
                    min(self._options.pull_batch_size, self._part.end - self._position),
                    expression=self._subscription.expression,
                    expression_type=self._subscription.expression_type,
                )
            except (ConnectionFailed, NoRouteError, BrokerError) as error:
                if not is_passing(error) or not self._backoff.pause():
                    raise
                self._client.forget_routes()

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{queue_text(self._queue)}, offsets {self._part.start} to {self._part.end}:"
                f" {what}; set failOnDataLoss=false to go on with what is there"
            )
