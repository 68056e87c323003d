"""Disks that fail in a simulated group: which call on which files, how, and for how long."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from random import Random

from rocketmq_tw.files.faulty import Fault
from tests.support.sim.brokers import BrokerProcess
from tests.support.sim.controllers import ControllerProcess
from tests.support.sim.simulation import Process

#: Parts of the paths of a broker's files; the empty one is all of them.
_OF_BROKERS = (
    "",
    "commitlog",
    "consumequeue",
    "index",
    "epochFileCheckpoint",
    "/store/checkpoint",
    "config/",
    "config/topics",
    "config/consumerOffset",
    "brokerIdentity",
    "timer",
    "deleted",
)
#: And of a controller's, Raft's among them.
_OF_CONTROLLERS = ("", "/data", "/index", "/s/", "/conf")
_ERRORS = (errno.ENOSPC, errno.EIO, errno.EMFILE)
#: What each error may strike. What is only read is left out: the checks read too.
_OPERATIONS = {
    errno.ENOSPC: ("pwrite", "create", "make_dirs", "rename"),
    errno.EIO: ("pwrite", "fsync", "truncate", "rename", "sync_dir", "remove"),
    errno.EMFILE: ("create", "sync_dir"),
}


def some_fault(chance: Random, process: Process) -> Fault:
    """A fault of any kind at any file of a process."""
    error = chance.choice(_ERRORS)
    paths = _OF_CONTROLLERS if isinstance(process, ControllerProcess) else _OF_BROKERS
    return Fault(
        chance.choice(_OPERATIONS[error]),
        chance.choice(paths),
        error,
        skip=chance.choice([0, 0, 1, 5]),
        times=chance.choice([1, 3, None]),
        kept=chance.choice([None, 1, 100]),
    )


def spoil_for_good(chance: Random, broker: BrokerProcess) -> list[Fault]:
    """Makes a broker's disk refuse all that a master needs; returns the faults."""
    error = chance.choice(_ERRORS)
    path = chance.choice(["", "commitlog", "epochFileCheckpoint"])
    operations = _OPERATIONS[error] if path != "commitlog" else ("pwrite", "fsync")
    faults = [Fault(operation, path, error) for operation in operations]
    broker.disk.faults += faults
    return faults


def mend(processes: Iterable[Process]) -> None:
    """All disks are well again, for as long as their processes live."""
    for process in processes:
        process.disk.faults.clear()


def needs_restart(process: Process) -> bool:
    """Whether a process says that it goes on only once it is started again."""
    if isinstance(process, ControllerProcess):
        node = None if process.controller is None else process.controller.node
        return node is not None and not node._running
    if isinstance(process, BrokerProcess):
        return process.broker is not None and bool(process.broker.store.failure)
    return False
