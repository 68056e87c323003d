"""What every server does to its process before anything else."""

import time
from typing import Any

from rocketmq_tw.net.descriptors import raise_descriptor_limit
from rocketmq_tw.services.allocator import return_freed_memory
from rocketmq_tw.services.log_escapes import escape_log


def prepare_process(reactor: Any) -> None:
    """Makes the log safe to read, lets the process open all the files that it may and give memory
    back, and makes timers independent of the wall clock. To be called before logging begins and
    anything waits."""
    escape_log()
    raise_descriptor_limit()
    use_monotonic_time(reactor)
    return_freed_memory(reactor)


def use_monotonic_time(reactor: Any) -> None:
    """Lets a reactor that counts by the wall clock, as Twisted's own do, count by the monotonic
    clock. Otherwise all waits would be an hour longer after the clock is set back by an hour."""
    if reactor.seconds is time.time and not reactor.getDelayedCalls():
        reactor.seconds = time.monotonic
