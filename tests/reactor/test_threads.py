"""Jobs for threads of a process that has several brokers."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredList

from rocketmq_tw.runtime.threads import allow_brokers, in_pool

#: Seconds.
LIMIT = 60
#: Jobs of two brokers whose disks hang, which keep their threads.
HANGING = 14


def _with_limit(deferred: Deferred[Any]) -> Deferred[Any]:
    clock: Any = reactor
    return deferred.addTimeout(LIMIT, clock)


@pytest_twisted.ensureDeferred
async def test_brokers_whose_disks_hang_hold_up_no_other() -> None:
    run, back = in_pool(reactor), Event()
    allow_brokers(reactor, 3)
    hanging = [run(back.wait) for _ in range(HANGING)]
    try:
        assert await _with_limit(run(lambda: "synced")) == "synced"
    finally:
        back.set()
        await _with_limit(DeferredList(hanging))
