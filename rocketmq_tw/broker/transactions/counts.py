"""How many half messages of each topic wait: stock 5.x's `transactionMetrics`.

What the file has is taken for what it is, stock's count; a broker that becomes the master counts
anew what really waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rocketmq_tw.broker.tables.versioned import TableFile
from rocketmq_tw.broker.tables.write_behind import WriteBehindTable
from rocketmq_tw.wire.bodies.base import DataVersion, decode_body, encode_body
from rocketmq_tw.wire.bodies.stats import TransactionCount, TransactionCounts


class HalfCounts(WriteBehindTable):
    """Topic -> how many of its messages wait for a decision."""

    def __init__(self, file: TableFile, now_ms: Callable[[], int]) -> None:
        super().__init__(file.write)
        self._file = file
        self._now_ms = now_ms
        self._counts: dict[str, TransactionCount] = {}
        self._version = DataVersion(timestamp=now_ms())

    def load(self) -> None:
        """Takes what the file has; raises what reading it raises where it is damaged."""
        table = self._file.read(lambda data: decode_body(TransactionCounts, data))
        if table is not None:
            self._counts = table.transaction_count
            self._version = table.data_version or self._version

    def all(self) -> Mapping[str, TransactionCount]:
        return self._counts

    def add(self, topic: str, number: int) -> None:
        """So many more wait, or less; a topic for which none does goes."""
        known = self._counts.get(topic)
        count = number if known is None else known.count + number
        if count > 0:
            self._counts[topic] = TransactionCount(count=count, time_stamp=self._now_ms())
        else:
            self._counts.pop(topic, None)
        self._dirty = True

    def replace(self, topics: Iterable[str]) -> None:
        """Counts anew: one for each time that a topic is named."""
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
