"""Long work on the reactor's thread; what blocks in it is done in a thread between two steps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.runtime.slices import InSlices
from rocketmq_tw.runtime.threads import InThread


@inlineCallbacks
def in_slices_with(
    steps: Iterator[None],
    is_left: Callable[[], bool],
    job: Callable[[], object],
    in_slices: InSlices,
    in_thread: InThread,
) -> Generator[Deferred[Any], Any, None]:
    """Goes through `steps`; where `is_left` says behind one that something is left for a thread,
    the next one waits until `job` has run there. Fires at the end, fails with what steps or job
    raise. A single step with nothing left is made when this returns."""
    is_over = False

    def until_left() -> Iterator[None]:
        nonlocal is_over
        for number, _ in enumerate(steps):
            if is_left():
                return
            if number:
                yield
        is_over = True

    while not is_over:
        yield in_slices(until_left())
        if is_left():
            yield in_thread(job)
