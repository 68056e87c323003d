"""Time is gone through once more: the end of the log is about to be cut, and what waits and what
was delivered goes back with it; or somebody has set the clock back.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.log_cut import LogCut
from rocketmq_tw.broker.timer.delivered import Delivered
from rocketmq_tw.broker.timer.delivery import TimerDelivery
from rocketmq_tw.broker.timer.enqueue import TimerQueue
from rocketmq_tw.broker.timer.progress import TimerCheckpoint, TimerProgress
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.store.timer.timer_files import TimerFiles


@inlineCallbacks
def take_back(
    host: Host,
    files: TimerFiles,
    progress: TimerProgress,
    queue: TimerQueue,
    delivery: TimerDelivery,
    cut: LogCut,
    delivered: Delivered,
) -> Generator[Deferred[Any], Any, None]:
    """What `cut` takes away waits no more, and what was delivered there waits again. The checkpoint
    goes back first: what a crash leaves of the rest does no harm then. Nothing is let in, delivered
    or written meanwhile."""
    yield host.in_slices(delivered.find())
    checkpoint = progress.checkpoint or TimerCheckpoint()
    read_ms, told = delivery.read_ms, min(queue.told, checkpoint.master_queue_offset)
    if delivered.first is not None:
        read_ms = min(read_ms, delivered.first)
    for behind in (cut.first_gone(TIMER_TOPIC, 0), delivered.first_missing):
        if behind is not None:
            told = min(told, behind)
    own = min(queue.offset, told)
    checkpoint = checkpoint._replace(
        read_ms=min(checkpoint.read_ms, read_ms), queue_offset=own, master_queue_offset=told
    )
    yield host.in_thread(lambda: progress.write(checkpoint))
    progress.take(checkpoint)
    delivery.forget_slot()
    delivery.go_to(read_ms)
    queue.offset = own
    if queue.limit is not None:
        queue.limit = min(queue.limit, told)
    queue.slot_over()
    yield host.in_slices(files.unlink_behind(cut.end))

    def note_log_position(position: int) -> None:
        log_position = min(checkpoint.log_position, position)
        progress.write(checkpoint._replace(log_position=log_position))

    yield host.in_thread(lambda: files.cut_unlinked(note_log_position))


@inlineCallbacks
def go_back(
    host: Host, files: TimerFiles, delivery: TimerDelivery
) -> Generator[Deferred[Any], Any, None]:
    """What is delivered comes not again, though its time does. Nothing is let in, delivered or
    written meanwhile."""
    # What is left of it has the rest of its time to wait.
    delivery.put_off()
    delivery.forget_slot()
    yield host.in_thread(lambda: files.wheel.keep_since(host.now_ms()))
    yield host.in_slices(delivery.go_back())
