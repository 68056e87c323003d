"""Answers that grow with a table: at once while they are small, in slices from then on."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from typing import TypeVar

from twisted.internet.defer import Deferred

from rocketmq_tw.runtime.shared_results import SharedResults
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

T = TypeVar("T")

#: Answers that may wait to be made, but for those of few keys. Each keeps its request, also where
#: its client is gone.
MOST_WAITING_ANSWERS = 64


class GrowingAnswers:
    """Makes bodies in steps between which other requests are served, and encodes them in a thread.

    A body that needs one step is made and encoded where it is asked for. One that needs more is
    begun anew once those asked for before it are made, so that only one of them is in memory.
    """

    def __init__(self, in_slices: Slices, in_thread: InThread) -> None:
        self._in_slices = in_slices
        self._in_thread = in_thread
        self._shared = SharedResults(in_slices)

    def answer(
        self,
        request: RemotingCommand,
        make: Callable[[], T],
        fill: Callable[[T], Iterator[None]],
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Returns the response to `request` with the body that `make` makes and the steps of `fill`
        fill. Raises, or fails with, what these raise, and `RequestError` where too many wait."""
        data = self.body(object(), make, fill, encode_body)
        if isinstance(data, bytes):
            return request.response(body=data)
        return data.addCallback(lambda data: request.response(body=data))

    def body(
        self,
        key: Hashable,
        make: Callable[[], T],
        fill: Callable[[T], Iterator[None]],
        encode: Callable[[T], bytes],
        *,
        few_keys: bool = False,
    ) -> bytes | Deferred[bytes]:
        """Returns what `encode`, which may run in a thread, makes of what `make` makes and the
        steps of `fill` fill. Requests with equal keys that wait for a body to be begun share it.
        `few_keys`: peers cannot make keys up, so that this one may wait however many do. Raises, or
        fails with, what these functions raise, and `RequestError` where too many others wait."""
        body = make()
        if _is_one_step(fill(body)):
            return encode(body)
        too_many = len(self._shared) >= MOST_WAITING_ANSWERS
        if too_many and not few_keys and key not in self._shared:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"{MOST_WAITING_ANSWERS} answers about large tables wait to be made:"
                " ask again later",
            )

        def collect() -> Deferred[bytes]:
            body = make()
            filled = self._in_slices(fill(body))
            return filled.addCallback(lambda _: self._in_thread(lambda: encode(body)))

        return self._shared.get(key, collect)

    def after(
        self,
        steps: Iterator[None],
        answer: Callable[[], RemotingCommand | Deferred[RemotingCommand]],
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Returns what `answer` returns once `steps` are made. Raises, or fails with, what they
        raise."""
        if next(steps, self) is self:
            return answer()
        return self._in_slices(steps).addCallback(lambda _: answer())


def _is_one_step(steps: Iterator[None]) -> bool:
    """Makes the first of `steps`; returns whether there are no others. Where there are, it ends
    them: the answer is begun anew."""
    for _ in steps:
        if isinstance(steps, Generator):
            # Not left to the collector, since PyPy's comes late.
            steps.close()
        return False
    return True
