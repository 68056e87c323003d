"""Messages and bytes that came into each topic and went out to each group, how long that took, and
what became of connections: for request 315 and, as counters that only grow (`totals.py`), for
monitoring.

As in stock a key has three windows: a minute sampled every 10 seconds, an hour sampled every 10
minutes, and a day sampled every hour. Each counts from its oldest sample until now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rocketmq_tw.broker.stats.totals import Total, Totals
from rocketmq_tw.message.names import pair_key, split_pair
from rocketmq_tw.net.interfaces import ConnectionEvent
from rocketmq_tw.store.interface import Arrived
from rocketmq_tw.wire.bodies.stats import BrokerStatsData, BrokerStatsItem

#: Keys that are counted at most: names cost memory, and clients choose them.
MAX_KEYS = 20_000
#: Keys of latencies, which are counted for each queue.
MAX_QUEUE_KEYS = 5_000
#: Keys that one step samples.
_STEP = 1_000
#: Samples of 10 seconds between two of the hour, and two of the day.
_HOUR_STEP, _DAY_STEP = 60, 360
_MINUTE_SAMPLES, _HOUR_SAMPLES, _DAY_SAMPLES = 6, 6, 24

TOPIC_PUT, GROUP_GET = "TOPIC_PUT_NUMS", "GROUP_GET_NUMS"
#: What a group gave back, in portions of one; and messages of the whole broker, whose key is the
#: cluster's name.
GIVEN_BACK = "SNDBCK_PUT_NUMS"
#: What went to the dead-letter queue of a group, by the topic where it came from.
DEAD = "DLQ_PUT_NUMS"
BROKER_PUT, BROKER_GET = "BROKER_PUT_NUMS", "BROKER_GET_NUMS"
#: Milliseconds from a send until it is stored, by queue and topic, and those of answers with
#: messages, by queue, topic and group; in portions of one request.
PUT_LATENCY, GET_LATENCY = "TOPIC_PUT_LATENCY", "GROUP_GET_LATENCY"
#: What became of connections, by the name of the event.
CONNECTIONS = "CHANNEL_ACTIVITY"
#: What is counted by topic and group.
_OF_PAIRS = (GROUP_GET, GIVEN_BACK, DEAD)
#: What is counted for each queue, whose number begins the key.
_OF_QUEUES = (PUT_LATENCY, GET_LATENCY)
#: What is told to monitoring as counters.
_COUNTERS = (GROUP_GET, DEAD)
#: The bytes of what is counted under another name.
_SIZES = {"TOPIC_PUT_SIZE": TOPIC_PUT, "GROUP_GET_SIZE": GROUP_GET}


class _Sample(NamedTuple):
    now_ms: int
    messages: int
    size: int
    times: int


class _Flow:
    """The counts of one key: messages (or milliseconds, or connections), their bytes, and the
    portions in which they came or went."""

    __slots__ = ("began_at", "day", "hour", "messages", "minute", "size", "times")

    def __init__(self, now_ms: int) -> None:
        self.began_at = now_ms
        self.messages = self.size = self.times = 0
        first = _Sample(now_ms, 0, 0, 0)
        self.minute = deque([first], _MINUTE_SAMPLES)
        self.hour = deque([first], _HOUR_SAMPLES)
        self.day = deque([first], _DAY_SAMPLES)

    def since(self, sample: _Sample, now_ms: int, *, of_sizes: bool = False) -> BrokerStatsItem:
        """Returns the growth since a sample: of messages, or of bytes."""
        grown = self.size - sample.size if of_sizes else self.messages - sample.messages
        times = self.times - sample.times
        lasted = max(now_ms - sample.now_ms, 1)
        return BrokerStatsItem(
            sum=grown, tps=grown * 1000 / lasted, avgpt=grown / times if times else 0.0
        )


class Traffic:
    """Counts by name and key. `elapsed_ms` tells milliseconds of a clock that is never set;
    `sample` is to be gone through every 10 seconds, one after the other. `cluster` is the key of
    what is counted for the whole broker."""

    def __init__(self, elapsed_ms: Callable[[], int], cluster: str = "") -> None:
        self._elapsed_ms = elapsed_ms
        self._cluster = cluster
        names = (TOPIC_PUT, *_OF_PAIRS, BROKER_PUT, BROKER_GET, *_OF_QUEUES, CONNECTIONS)
        self._flows: dict[str, dict[str, _Flow]] = {name: {} for name in names}
        self._totals = {name: Totals() for name in _COUNTERS}
        self._samples = 0
        #: Topics and groups that were removed since the last sample, and when.
        self._gone: dict[str, int] = {}

    def arrived(self, runs: Sequence[Arrived]) -> tuple[int, int]:
        """Counts messages that became readable; returns how many, and their bytes."""
        if len(runs) == 1:
            messages, size = runs[0].count, runs[0].size
        else:
            messages, size = sum([run.count for run in runs]), sum([run.size for run in runs])
        self._count(BROKER_PUT, self._cluster, messages, size)
        if len(runs) == 1 or len(topics := dict.fromkeys([run.topic for run in runs])) == 1:
            self._count(TOPIC_PUT, runs[0].topic, messages, size)
            return messages, size
        sums = {topic: [0, 0] for topic in topics}
        for run in runs:
            of_topic = sums[run.topic]
            of_topic[0] += run.count
            of_topic[1] += run.size
        for topic, (number, bytes_) in sums.items():
            self._count(TOPIC_PUT, topic, number, bytes_)
        return messages, size

    def pulled(self, topic: str, group: str, messages: int, size: int) -> None:
        """Counts messages of `topic`, of `size` bytes together, that were returned to a member of
        `group` in one answer."""
        self._count(GROUP_GET, pair_key(topic, group), messages, size)
        self._count(BROKER_GET, self._cluster, messages, size)

    def given_back(self, topic: str, group: str) -> None:
        """Counts a message from `topic` that a member of `group` gave back."""
        self._count(GIVEN_BACK, pair_key(topic, group), 1, 0)

    def buried(self, topic: str, group: str) -> None:
        """Counts a message from `topic` that goes to the dead-letter queue of `group`."""
        self._count(DEAD, pair_key(topic, group), 1, 0)

    def stored(self, topic: str, queue_id: int, milliseconds: int) -> None:
        """Counts how long a send took until it was stored in a queue of `topic`."""
        self._count(PUT_LATENCY, f"{queue_id}@{topic}", milliseconds, 0)

    def answered(self, topic: str, group: str, queue_id: int, milliseconds: int) -> None:
        """Counts how long an answer took that has messages of `topic`; `queue_id` is what the
        member of `group` asked for, -1 where it pops from any queue."""
        self._count(GET_LATENCY, f"{queue_id}@{topic}@{group}", milliseconds, 0)

    def connection(self, event: ConnectionEvent) -> None:
        """Counts what became of a connection."""
        self._count(CONNECTIONS, event.name, 1, 0)

    def forget(self, names: Sequence[str]) -> None:
        """Forgets topics and groups that were removed: with the next sample what was counted of
        them until now is gone."""
        self._gone.update(dict.fromkeys(names, self._elapsed_ms()))

    def sample(self) -> Iterator[None]:
        """Moves the windows on, in steps between which more is counted; a key without a message for
        a day is forgotten; its total is not."""
        self._samples += 1
        now = self._elapsed_ms()
        gone, self._gone = self._gone, {}
        is_hour, is_day = self._samples % _HOUR_STEP == 0, self._samples % _DAY_STEP == 0
        looked = 0
        for name, flows in self._flows.items():
            for key, flow in list(flows.items()):
                if gone and _is_gone(name, key, flow, gone):
                    self._end(name, key)
                    continue
                sample = _Sample(now, flow.messages, flow.size, flow.times)
                flow.minute.append(sample)
                if is_hour:
                    flow.hour.append(sample)
                if is_day:
                    flow.day.append(sample)
                    if len(flow.day) == _DAY_SAMPLES and flow.day[0].times == flow.times:
                        self._end(name, key)
                looked += 1
                if looked % _STEP == 0:
                    yield
        if gone:
            yield from self._end_totals(gone)

    def tps(self, name: str, key: str) -> float:
        """Returns the messages of a key per second over the last minute; 0 for an unknown one."""
        flow = self._flows[name].get(key)
        if flow is None:
            return 0.0
        return flow.since(flow.minute[0], self._elapsed_ms()).tps

    def totals(self, name: str) -> Iterator[tuple[str | None, Total]]:
        """Yields each key of GROUP_GET_NUMS or DLQ_PUT_NUMS with all that was
        counted since the broker started, or since its topic or group was made again; None for what
        has no series of its own."""
        return self._totals[name].with_counted(self._flows[name])

    def of(self, name: str, key: str) -> BrokerStatsData | None:
        """Returns the windows of a key: a topic for TOPIC_PUT_NUMS and TOPIC_PUT_SIZE,
        `topic@group` for GROUP_GET_NUMS, GROUP_GET_SIZE, SNDBCK_PUT_NUMS and DLQ_PUT_NUMS, the
        cluster for BROKER_PUT_NUMS and BROKER_GET_NUMS, `queue@topic` for TOPIC_PUT_LATENCY,
        `queue@topic@group` for GROUP_GET_LATENCY, CONNECT, CLOSE, IDLE or EXCEPTION for
        CHANNEL_ACTIVITY."""
        of_sizes = name in _SIZES
        flow = self._flows.get(_SIZES.get(name, name), {}).get(key)
        if flow is None:
            return None
        now = self._elapsed_ms()
        return BrokerStatsData(
            stats_minute=flow.since(flow.minute[0], now, of_sizes=of_sizes),
            stats_hour=flow.since(flow.hour[0], now, of_sizes=of_sizes),
            stats_day=flow.since(flow.day[0], now, of_sizes=of_sizes),
        )

    def _count(self, name: str, key: str, messages: int, size: int) -> None:
        flows = self._flows[name]
        flow = flows.get(key)
        if flow is None:
            totals = self._totals.get(name)
            if len(flows) >= (MAX_QUEUE_KEYS if name in _OF_QUEUES else MAX_KEYS):
                if totals is not None:
                    totals.count_other(messages, size)
                return
            flow = flows[key] = _Flow(self._elapsed_ms())
            if totals is not None:
                totals.begin(key)
        flow.messages += messages
        flow.size += size
        flow.times += 1

    def _end(self, name: str, key: str) -> None:
        flow = self._flows[name].pop(key)
        totals = self._totals.get(name)
        if totals is not None:
            totals.settle(key, flow.messages, flow.size)

    def _end_totals(self, gone: Mapping[str, int]) -> Iterator[None]:
        for name, totals in self._totals.items():
            for looked, key in enumerate(totals.keys(), 1):
                if any(each in gone for each in _names(name, key)):
                    totals.remove(key, is_counted=key in self._flows[name])
                if looked % _STEP == 0:
                    yield


def _names(name: str, key: str) -> tuple[str, ...]:
    """Returns the topic and the group that a key stands for."""
    if name in _OF_QUEUES:
        return tuple(key.split("@")[1:])
    if name == TOPIC_PUT:
        return (key,)
    if name in _OF_PAIRS:
        return split_pair(key)
    return ()


def _is_gone(name: str, key: str, flow: _Flow, gone: Mapping[str, int]) -> bool:
    """Returns whether the topic or group of a key was removed since it was counted first."""
    return any(each in gone and flow.began_at <= gone[each] for each in _names(name, key))
