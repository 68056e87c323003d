"""Counts how many half messages of each topic wait: stock 5.x's `config/transactionMetrics`
(docs/formats/transactions.md). A broker that becomes the master counts anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rocketmq_tw.broker.tables.versioned import TableFile
from rocketmq_tw.broker.tables.write_behind import WriteBehindTable
from rocketmq_tw.broker.transactions.book import State
from rocketmq_tw.metrics.instruments import Counters, Histogram, Metric, gauge, of_topic
from rocketmq_tw.wire.bodies.base import DataVersion, decode_body, encode_body
from rocketmq_tw.wire.bodies.stats import TransactionCount, TransactionCounts

#: Upper bounds of the buckets, in seconds, as in stock.
_FINISH_BOUNDS = (5, 60, 600, 3600, 12 * 3600, 24 * 3600)


class HalfCounts(WriteBehindTable):
    """Topic -> how many of its messages wait for a decision. Beside the table, the half messages
    that were committed and rolled back since the start."""

    def __init__(self, file: TableFile, now_ms: Callable[[], int]) -> None:
        super().__init__(file.write)
        self._file = file
        self._now_ms = now_ms
        self._counts: dict[str, TransactionCount] = {}
        self._version = DataVersion(timestamp=now_ms())
        self._committed: Counters[str] = Counters("rocketmq_commit_messages_total", of_topic)
        self._rolled_back: Counters[str] = Counters("rocketmq_rollback_messages_total", of_topic)
        #: Seconds from the making of each to its commit. `unit` is no mistake: only the name says
        #: milliseconds, and it is stock's, whose values are seconds, too.
        self._finish_latency: Histogram[str] = Histogram(
            "rocketmq_finish_message_latency", _FINISH_BOUNDS, of_topic, unit="milliseconds"
        )

    def load(self) -> None:
        """Takes what the file has; raises what reading it raises where it is damaged."""
        table = self._file.read(lambda data: decode_body(TransactionCounts, data))
        if table is not None:
            self._counts = table.transaction_count
            self._version = table.data_version or self._version

    def add(self, topic: str, number: int) -> None:
        """Adds `number`, which may be negative, to the count of `topic`; one of 0 is forgotten."""
        known = self._counts.get(topic)
        count = number if known is None else known.count + number
        if count > 0:
            self._counts[topic] = TransactionCount(count=count, time_stamp=self._now_ms())
        else:
            self._counts.pop(topic, None)
        self._dirty = True

    def settled(self, topic: str, state: State, born_ms: int) -> None:
        """Counts a half message that was settled, of a message made at `born_ms`."""
        self.add(topic, -1)
        if state is State.COMMITTED:
            # By the producer's clock it may have been made later.
            self._finish_latency.record(topic, max(self._now_ms() - born_ms, 0) / 1000)
            self._committed.add(topic)
        elif state is State.ROLLED_BACK:
            self._rolled_back.add(topic)

    def forget_figures(self, topics: Iterable[str]) -> None:
        """Ends the series of what was settled of topics that were removed."""
        gone = list(topics)
        self._committed.forget(gone)
        self._rolled_back.forget(gone)
        self._finish_latency.forget(gone)

    def metrics(self, *, with_waiting: bool) -> Iterator[Metric]:
        """Yields how many messages of each topic wait, if that is wanted, and what was settled
        since the start; more may be counted in between."""
        for topic, count in list(self._counts.items()) if with_waiting else ():
            yield gauge("rocketmq_half_messages", count.count, {"topic": topic})
        yield from self._committed.metrics()
        yield from self._rolled_back.metrics()
        yield from self._finish_latency.metrics()

    def replace(self, topics: Iterable[str]) -> None:
        """Takes new counts: one for each occurrence of a topic in `topics`."""
        former, self._counts = self._counts, {}
        dirty = self._dirty
        for topic in topics:
            self.add(topic, 1)
        same = {topic: count.count for topic, count in former.items()} == {
            topic: count.count for topic, count in self._counts.items()
        }
        self._dirty = dirty or not same

    def _encoder(self) -> Callable[[], bytes]:
        self._version = self._version.next(self._now_ms())
        table = TransactionCounts(transaction_count=dict(self._counts), data_version=self._version)
        return lambda: encode_body(table)
