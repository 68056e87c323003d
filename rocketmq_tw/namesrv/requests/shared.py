"""Answers that many ask for and that take long to make."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from twisted.internet.defer import Deferred, DeferredLock

from rocketmq_tw.namesrv.background import Background
from rocketmq_tw.runtime.waiters import fire_all


class SharedAnswers:
    """One body is made at a time. Who asks for what is not begun yet shares it; who asks while it
    is being made gets the next one, which has what changed before the question."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._one = DeferredLock()
        self._waiting: dict[Hashable, list[Deferred[bytes]]] = {}

    def get(self, key: Hashable, make: Callable[[], Deferred[bytes]]) -> Deferred[bytes]:
        """Fires with what `make` fires with; equal keys stand for equal answers."""
        answered: Deferred[bytes] = Deferred()
        if key in self._waiting:
            self._waiting[key].append(answered)
            return answered
        self._waiting[key] = waiting = [answered]

        def begin() -> Deferred[bytes]:
            del self._waiting[key]
            return make()

        made = self._one.run(begin)
        made.addBoth(lambda result: self._background.sweep(fire_all(waiting, result)))
        return answered
