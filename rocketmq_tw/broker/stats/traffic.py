"""How many messages went into each topic, and out to each group: what request 315 tells.

As in stock a key has three windows: a minute looked at every 10 seconds, an hour looked at every
10 minutes, and a day looked at every hour. Each counts from its oldest look on until now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from rocketmq_tw.broker.interfaces import Arrived
from rocketmq_tw.wire.bodies.stats import BrokerStatsData, BrokerStatsItem

#: Keys that are counted at most: names cost memory, and anybody may make some.
MAX_KEYS = 20_000
#: Looks of 10 seconds between those of the hour and those of the day.
_HOUR_STEP, _DAY_STEP = 60, 360
_MINUTE_LOOKS, _HOUR_LOOKS, _DAY_LOOKS = 6, 6, 24

TOPIC_PUT, GROUP_GET = "TOPIC_PUT_NUMS", "GROUP_GET_NUMS"
#: Bytes of what a group got; and messages of the whole broker, whose key is the cluster's name.
GROUP_SIZE, BROKER_PUT, BROKER_GET = "GROUP_GET_SIZE", "BROKER_PUT_NUMS", "BROKER_GET_NUMS"

_topic_of, _count_of = attrgetter("topic"), attrgetter("count")


def group_key(topic: str, group: str) -> str:
    """The key of GROUP_GET_NUMS, as stock has it."""
    return f"{topic}@{group}"


class _Look(NamedTuple):
    now_ms: int
    messages: int
    times: int


class _Flow:
    """One key: so many messages, in so many portions."""

    __slots__ = ("day", "hour", "messages", "minute", "times")

    def __init__(self, now_ms: int) -> None:
        self.messages = self.times = 0
        first = _Look(now_ms, 0, 0)
        self.minute = deque([first], _MINUTE_LOOKS)
        self.hour = deque([first], _HOUR_LOOKS)
        self.day = deque([first], _DAY_LOOKS)

    def add(self, messages: int) -> None:
        self.messages += messages
        self.times += 1

    def since(self, look: _Look, now_ms: int) -> BrokerStatsItem:
        messages, times = self.messages - look.messages, self.times - look.times
        lasted = max(now_ms - look.now_ms, 1)
        return BrokerStatsItem(
            sum=messages, tps=messages * 1000 / lasted, avgpt=messages / times if times else 0.0
        )


class Traffic:
    """`now_ms` tells milliseconds since 1970; `look` is to be called every 10 seconds. `cluster`
    is the key of what is counted for the whole broker."""

    def __init__(self, now_ms: Callable[[], int], cluster: str = "") -> None:
        self._now_ms = now_ms
        self._cluster = cluster
        names = (TOPIC_PUT, GROUP_GET, GROUP_SIZE, BROKER_PUT, BROKER_GET)
        self._flows: dict[str, dict[str, _Flow]] = {name: {} for name in names}
        self._looks = 0

    def arrived(self, runs: Sequence[Arrived]) -> None:
        """Messages became readable: the store's arrival callback."""
        numbers = dict.fromkeys(map(_topic_of, runs), 0)
        total = sum(map(_count_of, runs))
        self._count(BROKER_PUT, self._cluster, total)
        if len(numbers) == 1:
            self._count(TOPIC_PUT, runs[0].topic, total)
            return
        for run in runs:
            numbers[run.topic] += run.count
        for topic, number in numbers.items():
            self._count(TOPIC_PUT, topic, number)

    def pulled(self, topic: str, group: str, messages: int, size: int) -> None:
        """So many messages of `topic`, of `size` bytes, left in one answer to a member of
        `group`."""
        key = group_key(topic, group)
        self._count(GROUP_GET, key, messages)
        self._count(GROUP_SIZE, key, size)
        self._count(BROKER_GET, self._cluster, messages)

    def look(self) -> None:
        """Moves the windows on; a key without a message for a day is forgotten."""
        self._looks += 1
        now = self._now_ms()
        for flows in self._flows.values():
            for flow in flows.values():
                look = _Look(now, flow.messages, flow.times)
                flow.minute.append(look)
                if self._looks % _HOUR_STEP == 0:
                    flow.hour.append(look)
                if self._looks % _DAY_STEP == 0:
                    flow.day.append(look)
        if self._looks % _DAY_STEP == 0:
            self._forget_idle()

    def tps(self, name: str, key: str) -> float:
        """The messages of a key per second of the last minute; 0 for what is not counted."""
        flow = self._flows[name].get(key)
        if flow is None:
            return 0.0
        return flow.since(flow.minute[0], self._now_ms()).tps

    def of(self, name: str, key: str) -> BrokerStatsData | None:
        """The windows of a key: a topic for TOPIC_PUT_NUMS, `topic@group` for GROUP_GET_NUMS and
        GROUP_GET_SIZE, the cluster for BROKER_PUT_NUMS and BROKER_GET_NUMS."""
        flow = self._flows.get(name, {}).get(key)
        if flow is None:
            return None
        now = self._now_ms()
        return BrokerStatsData(
            stats_minute=flow.since(flow.minute[0], now),
            stats_hour=flow.since(flow.hour[0], now),
            stats_day=flow.since(flow.day[0], now),
        )

    def _count(self, name: str, key: str, messages: int) -> None:
        flows = self._flows[name]
        flow = flows.get(key)
        if flow is None:
            if len(flows) >= MAX_KEYS:
                return
            flow = flows[key] = _Flow(self._now_ms())
        flow.add(messages)

    def _forget_idle(self) -> None:
        for flows in self._flows.values():
            for key in [
                key
                for key, flow in flows.items()
                if len(flow.day) == _DAY_LOOKS and flow.day[0].messages == flow.messages
            ]:
                del flows[key]
