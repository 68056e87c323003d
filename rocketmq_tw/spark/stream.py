"""The offsets of a stream, trigger by trigger: what is new, how much of it, what is done."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rocketmq_tw.client.errors import BrokerError, ClientError
from rocketmq_tw.spark.cluster import UNREACHABLE, SourceCluster
from rocketmq_tw.spark.errors import DataLossError, OptionError
from rocketmq_tw.spark.offsets import (
    Offsets,
    OffsetsJson,
    from_json,
    queue_text,
    renamed,
    to_json,
    without_renamed,
)
from rocketmq_tw.spark.options import SourceOptions
from rocketmq_tw.spark.planning import starting_offsets
from rocketmq_tw.spark.ranges import OffsetRange, prorate, ranges_between, split
from rocketmq_tw.spark.reading import is_passing
from rocketmq_tw.spark.waiting import Backoff, Overdue
from rocketmq_tw.wire.bodies.queues import MessageQueue

log = logging.getLogger(__name__)

#: What fails where no name server gives the topics of a pattern; no topic has blanks in its name.
_PATTERN = "the topics of the pattern"


class StreamReader(SupportsTriggerAvailableNow):
    """Lives on the driver for as long as a query runs; its client is made when first needed, so
    that the object may travel before.

    Routes are asked for anew at each trigger: a new queue or broker is read from its earliest
    offset on, and one that does not answer keeps its place until it does.
    """

    #: Queues that are read and that no route names now. Plans in older checkpoints have none.
    _missing: Set[MessageQueue] = frozenset()

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: SourceCluster | None = None
        self._newest: Offsets | None = None
        self._target: Offsets | None = None
        self._overdue = Overdue(options.broker_down_timeout)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cluster": None}

    # What Spark asks

    def initialOffset(self) -> OffsetsJson:
        cluster = self._connected()
        known = cluster.queues()
        if known:
            cluster.check_expression(known[0])
        bounds = {queue: cluster.bounds(queue) for queue in known}
        return to_json(starting_offsets(self._options, cluster, bounds, known))

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        latest = self._connected().latest
        queues = self._connected().queues()
        self._target = {queue: self._patiently(latest, queue) for queue in queues}

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> OffsetsJson:
        begin = from_json(start) if start is not None else from_json(self.initialOffset())
        if self._target is not None:
            self._note_missing(begin, self._target)
            newest = self._target = self._reached(begin, self._target)
        else:
            newest = self._ask_newest(begin)
        self._newest = newest
        begin = self._begun_anew(self._with_new(begin, newest), newest)
        end = without_renamed(begin | newest)
        if isinstance(limit, ReadMaxRows):
            end = prorate(begin, end, limit.max_rows)
        return to_json(end)

    def reportLatestOffset(self) -> OffsetsJson | None:
        return None if self._newest is None else to_json(self._newest)

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
        """Returns the tasks of one batch."""
        until = from_json(end)
        begin = self._begun_anew(self._with_new(from_json(start), until), until)
        return split(ranges_between(begin, until), self._options.min_partitions)

    def commit(self, end: dict[str, Any]) -> None:
        """Tells the brokers how far the group is, for who watches its lag; the truth is Spark's
        checkpoint, so a failure is only logged."""
        if not self._options.commit_offsets:
            return
        cluster = self._connected()
        for queue, offset in from_json(end).items():
            try:
                cluster.commit(queue, offset)
            except ClientError as error:
                log.warning("the offset of %s: %s", queue_text(queue), error)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    # What it asks the cluster

    def _connected(self) -> SourceCluster:
        if self._cluster is None:
            self._cluster = SourceCluster(self._options)
        return self._cluster

    def _with_new(self, begin: Offsets, queues: Iterable[MessageQueue]) -> Offsets:
        """Returns `begin` with those of `queues` that came while the query ran."""
        came = [queue for queue in queues if queue not in begin]
        found = renamed(begin, came)
        return begin | {
            queue: found[queue] if queue in found else self._first(queue) for queue in came
        }

    def _first(self, queue: MessageQueue) -> int:
        """Returns the earliest offset of a queue that came while the query ran."""
        return self._patiently(self._connected().earliest, queue)

    def _patiently(self, ask: Callable[[MessageQueue], int], queue: MessageQueue) -> int:
        """Returns the answer about a queue, asked for until the broker answers, or is away for too
        long."""
        backoff = Backoff(self._options.broker_down_timeout)
        while True:
            try:
                return ask(queue)
            except ClientError as error:
                if not is_passing(error) or not backoff.pause():
                    raise
                self._connected().refresh()

    def _reached(self, begin: Offsets, target: Offsets) -> Offsets:
        """Returns the target of a query that ends by itself once no queue of it is behind `begin`,
        as one of a replica that took over is for a while."""
        reached = dict(target)
        backoff = Backoff(self._options.broker_down_timeout)
        for queue in begin.keys() & target.keys():
            while reached[queue] < begin[queue]:
                if not backoff.pause():
                    self._lost(queue, begin[queue], reached[queue])
                    break
                self._connected().refresh()
                reached[queue] = self._patiently(self._connected().latest, queue)
        return reached

    def _begun_anew(self, begin: Offsets, end: Offsets) -> Offsets:
        """Returns `begin` with other offsets for queues that lost messages, where that is allowed:
        they end before it.

        One that still has its first message may be a new one, of a topic that was made anew, so
        all of it is read; where that is removed, the queue is old and was read to its end.
        """
        if self._options.fail_on_data_loss:
            return begin
        return begin | {
            queue: 0 if self._first(queue) == 0 else end[queue]
            for queue, offset in begin.items()
            if end.get(queue, offset) < offset
        }

    def _ask_newest(self, begin: Offsets) -> Offsets:
        """Returns the newest offset of each queue that answers; others keep their place."""
        cluster = self._connected()
        cluster.refresh()
        newest = dict(begin)
        known = list(self._known_queues(cluster))
        self._note_missing(begin, known)
        for queue in known:
            try:
                latest = cluster.latest(queue)
            except (*UNREACHABLE, BrokerError) as error:
                self._missed(queue, error)
                continue
            self._overdue.answered(queue)
            # How long a replica is behind counts from its first answer.
            behind = ("behind", queue)
            if latest >= begin.get(queue, 0):
                self._overdue.answered(behind)
                newest[queue] = latest
            elif self._overdue.is_late(behind):
                self._lost(queue, begin[queue], latest)
                newest[queue] = latest
        return newest

    def _known_queues(self, cluster: SourceCluster) -> Iterator[MessageQueue]:
        """Returns the queues that name servers know now. The queues of a broker that fails are
        missing for a while, and so is a topic whose only broker fails."""
        try:
            topics = cluster.topics()
        except OptionError as error:
            self._missed(_PATTERN, error)
            return
        self._overdue.answered(_PATTERN)
        for topic in topics:
            try:
                yield from cluster.queues_of(topic)
            except OptionError as error:
                self._missed(topic, error)
            else:
                self._overdue.answered(topic)

    def _note_missing(self, begin: Offsets, known: Collection[MessageQueue]) -> None:
        """Logs once which queues no route names any more. That is no error: their broker may be
        gone for good, with all of it read."""
        if not self._overdue.works(_PATTERN):
            return
        read = without_renamed(begin | dict.fromkeys(known, 0))
        missing = {queue for queue in read.keys() - set(known) if self._overdue.works(queue.topic)}
        for queue in sorted(missing - self._missing):
            self._overdue.answered(queue)
            log.warning(
                "%s: no route names it; it keeps its place, and what it has is not read until"
                " one does",
                queue_text(queue),
            )
        self._missing = missing

    def _missed(self, what: MessageQueue | str, error: Exception) -> None:
        """Raises `error` once it is one for too long. Spark asks a hundred times a second where
        there is nothing to do, so only the first failure is logged."""
        if self._overdue.works(what):
            log.warning(
                "%s keeps its place for at most %g s: %s",
                queue_text(what) if isinstance(what, MessageQueue) else what,
                self._options.broker_down_timeout,
                error,
            )
        if self._overdue.is_late(what):
            raise error

    def _lost(self, queue: MessageQueue, expected: int, latest: int) -> None:
        """Raises `DataLossError` where `failOnDataLoss`: a replica that took over may be behind for
        a while; one that stays behind has lost messages."""
        what = f"{queue_text(queue)} ends at {latest} and was read up to {expected} before"
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{what}: was the topic created anew? Start with a new checkpoint, or set"
                " failOnDataLoss=false to go on with what is there"
            )
        log.warning("%s: it goes on with what is there", what)
