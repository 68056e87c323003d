"""Requests that were held and may go on: a message may have come, or their time is up.

One message may wake any number of them, and each reads again. So what is quick is resumed at once
while it is not much, and all else a little in each turn of the reactor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from twisted.logger import Logger

from rocketmq_tw.broker.interfaces import MessageFilter
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.slices import InSlices

#: Quick ones that are resumed in one go.
AT_ONCE = 200

log = Logger()


class HeldRequest:
    """A read or pop that waits in a queue for what `wanted` wants."""

    __slots__ = ("peer", "resume", "wanted")

    def __init__(self, wanted: MessageFilter, peer: IPeer, resume: Callable[[], None]) -> None:
        # What arrives is asked by its properties; and many may ask the same.
        self.wanted = wanted if wanted.by_extra is None else wanted._replace(by_extra=None)
        self.peer = peer
        self.resume = resume

    def wake(self) -> None:
        """Resumes it, unless its peer is gone."""
        if self.peer.connected:
            try:
                self.resume()
            except Exception:
                log.failure("resuming a held request of {peer}", peer=self.peer.address)


class Waking:
    """What is woken; resumed in the order in which it was, but that quick ones pass by slow ones,
    and each as its peer keeps up."""

    def __init__(self, in_slices: InSlices) -> None:
        self._in_slices = in_slices
        self._ready: list[HeldRequest] = []
        #: Those that are too slow, or too many, for one turn.
        self._waiting: deque[HeldRequest] = deque()
        self._is_under_way = False

    def __bool__(self) -> bool:
        """Whether `resume` has something to do."""
        return bool(self._ready)

    def add(self, woken: Iterable[HeldRequest]) -> None:
        """These go on with the next `resume`."""
        self._ready += woken

    def resume(self) -> None:
        """Resumes what was added, and what that adds in turn."""
        resumed = 0
        while self._ready:
            ready, self._ready = self._ready, []
            for held in ready:
                if held.wanted.weight > 1 or resumed >= AT_ONCE:
                    self._waiting.append(held)
                else:
                    resumed += 1
                    held.peer.when_ready(held.wake)
        if self._waiting and not self._is_under_way:
            self._is_under_way = True
            self._in_slices(self._one_by_one())

    def resume_all(self) -> None:
        """Resumes all now: nobody may be resumed once a role is over."""
        ready, self._ready = [*self._waiting, *self._ready], []
        self._waiting.clear()
        for held in ready:
            held.peer.when_ready(held.wake)

    def _one_by_one(self) -> Iterator[None]:
        try:
            while self._waiting:
                held = self._waiting.popleft()
                held.peer.when_ready(held.wake)
                yield
        finally:
            self._is_under_way = False
