"""Answers that grow with a table: at once while they are small, bit by bit from then on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, DeferredLock

from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.command import RemotingCommand

T = TypeVar("T")

#: What one step of most work looks at: some milliseconds.
STEP = 200


def every(number: int) -> bool:
    """Whether a step ends behind the entry of this number, which counts from 0."""
    return number % STEP == STEP - 1


class GrowingAnswers:
    """Makes bodies in steps between which others are served, and encodes them in a thread.

    One that needs more than a step is made anew, one such after the other: what waits takes no
    memory.
    """

    def __init__(
        self, in_slices: Callable[[Iterator[None]], Deferred[Any]], in_thread: InThread
    ) -> None:
        self._in_slices = in_slices
        self._in_thread = in_thread
        self._one = DeferredLock()

    def answer(
        self,
        request: RemotingCommand,
        make: Callable[[], T],
        fill: Callable[[T], Iterator[None]],
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """The response to `request` with the body that `make` makes and the steps of `fill` fill.
        Raises, or fails with, what these raise."""
        body = make()
        if next(fill(body), self) is self:
            return request.response(body=encode_body(body))
        return self._one.run(self._bit_by_bit, request, make, fill)

    def after(
        self,
        steps: Iterator[None],
        answer: Callable[[], RemotingCommand | Deferred[RemotingCommand]],
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """What `answer` returns once `steps` are made. Raises, or fails with, what they raise."""
        if next(steps, self) is self:
            return answer()
        return self._in_slices(steps).addCallback(lambda _: answer())

    def _bit_by_bit(
        self,
        request: RemotingCommand,
        make: Callable[[], T],
        fill: Callable[[T], Iterator[None]],
    ) -> Deferred[RemotingCommand]:
        body = make()
        filled = self._in_slices(fill(body))
        filled.addCallback(lambda _: self._in_thread(lambda: encode_body(body)))
        return filled.addCallback(lambda data: request.response(body=data))
