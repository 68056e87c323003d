"""Limits how long values wait for something, with one timer for all of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.runtime.alarm import Alarm

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Deadlines(Generic[K, V]):
    """Values by key, in the order in which they came, each until it is taken or has been here for
    `limit` seconds: then `expired(key, value)` is called. It may not fail."""

    def __init__(
        self, clock: IReactorTime, limit: float, expired: Callable[[K, V], object]
    ) -> None:
        self._clock = clock
        self._limit = limit
        self._expired = expired
        # Unlike that of a dict, its front is found at once after many were taken there.
        self._waiting: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._alarm = Alarm(clock, self._expire)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K, value: V) -> None:
        """Adds a value, behind all others."""
        self._waiting.pop(key, None)
        self._waiting[key] = self._clock.seconds() + self._limit, value
        self._alarm.set_if_unset(self._limit)

    def first(self) -> tuple[K, V] | None:
        """Returns the one that waits longest, without taking it; None without any."""
        for key, (_, value) in self._waiting.items():
            return key, value
        return None

    def take(self, key: K) -> V | None:
        """Takes a value; None where it does not wait any more."""
        waiting = self._waiting.pop(key, None)
        return None if waiting is None else waiting[1]

    def take_all(self) -> list[tuple[K, V]]:
        """Takes all that wait by now."""
        self._alarm.cancel()
        waiting, self._waiting = self._waiting, OrderedDict()
        return [(key, value) for key, (_, value) in waiting.items()]

    def _expire(self) -> None:
        now = self._clock.seconds()
        while self._waiting:
            key, (deadline, value) = next(iter(self._waiting.items()))
            if deadline > now:
                self._alarm.set(max(0.001, deadline - now))
                break
            del self._waiting[key]
            self._expired(key, value)
