"""Counts how many timed messages of each topic wait: stock 5.x's `config/timermetrics`
(docs/formats/timers.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice

from rocketmq_tw.broker.tables.versioned import TableFile
from rocketmq_tw.broker.tables.write_behind import WriteBehindTable
from rocketmq_tw.metrics.instruments import MAX_SERIES, Counters, Histogram, Metric, gauge, of_topic
from rocketmq_tw.wire.bodies.base import DataVersion, decode_body, encode_body
from rocketmq_tw.wire.bodies.stats import TimedCount, TimedMessageCounts

#: Upper bounds of the buckets of delays, in seconds, as in stock.
_DELAY_BOUNDS = (60, 600, 3600, 12 * 3600, 24 * 3600, 3 * 24 * 3600)


class TimedCounts(WriteBehindTable):
    """Topic -> how many of its messages wait; a message that recalls another one counts -1."""

    def __init__(self, file: TableFile, now_ms: Callable[[], int]) -> None:
        super().__init__(file.write)
        self._file = file
        self._now_ms = now_ms
        self._counts: dict[str, TimedCount] = {}
        #: Seconds from when each was stored until its time.
        self.delays: Histogram[str] = Histogram(
            "rocketmq_delay_message_latency", _DELAY_BOUNDS, of_topic, unit="seconds"
        )
        #: Messages that went into the wheel, and that were delivered or went into it once more.
        self.entered: Counters[str] = Counters("rocketmq_timer_enqueue_total", of_topic)
        self.delivered: Counters[str] = Counters("rocketmq_timer_dequeue_total", of_topic)
        self._version = DataVersion(timestamp=now_ms())
        #: What was added since a recount began; None while there is none.
        self._since: dict[str, int] | None = None

    def load(self) -> None:
        """Takes what the file has; raises what reading it raises where it is damaged."""
        table = self._file.read(lambda data: decode_body(TimedMessageCounts, data))
        if table is not None:
            self._counts = table.timing_count
            self._version = table.data_version or self._version

    def table(self) -> TimedMessageCounts:
        """Returns the content of the file, and of the answer to request 61."""
        return TimedMessageCounts(timing_count=dict(self._counts), data_version=self._version)

    def metrics(self) -> Iterator[Metric]:
        """Yields how many messages of each topic wait, of so many topics at most, and since the
        start the delays and numbers of those that came, and of those that were delivered."""
        for topic, count in islice(list(self._counts.items()), MAX_SERIES):
            yield gauge("rocketmq_timing_messages", max(count.count, 0), {"topic": topic})
        yield from self.delays.metrics()
        yield from self.entered.metrics()
        yield from self.delivered.metrics()

    def forget_figures(self, topics: Iterable[str]) -> None:
        """Ends the series of what came and was delivered of topics that were removed."""
        gone = list(topics)
        self.delays.forget(gone)
        self.entered.forget(gone)
        self.delivered.forget(gone)

    def of(self, topic: str) -> int:
        """Returns how many messages of `topic` wait."""
        count = self._counts.get(topic)
        return 0 if count is None else count.count

    def add(self, topic: str, number: int) -> None:
        """Adds `number`, which may be negative, to the count of `topic`."""
        self._set(topic, self.of(topic) + number)
        if self._since is not None:
            self._since[topic] = self._since.get(topic, 0) + number

    def remove(self, topic: str) -> None:
        """Forgets a topic."""
        self._dirty |= self._counts.pop(topic, None) is not None

    def begin_recount(self) -> None:
        """Remembers what is added from now on, until `replace` brings the result of a recount."""
        self._since = {}

    def replace(self, counted: Mapping[str, int]) -> None:
        """Takes what waited when the recount began, with what was added since."""
        since, self._since = self._since or {}, None
        for topic in self._counts.keys() | counted.keys() | since.keys():
            number = counted.get(topic, 0) + since.get(topic, 0)
            if number != self.of(topic):
                self._set(topic, number)

    def keep_only(self, topics: Collection[str]) -> None:
        """Forgets topics for which nothing waits and that are not among `topics`."""
        for topic in [topic for topic, count in self._counts.items() if count.count <= 0]:
            if topic not in topics:
                self.remove(topic)

    def _set(self, topic: str, number: int) -> None:
        self._counts[topic] = TimedCount(count=number, time_stamp=self._now_ms())
        self._dirty = True

    def _encoder(self) -> Callable[[], bytes]:
        self._version = self._version.next(self._now_ms())
        table = self.table()
        return lambda: encode_body(table)
