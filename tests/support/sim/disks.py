"""Disks that fail in a simulated group: which call on which files, how, and for how long."""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from random import Random

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.store.errors import StoreError
from tests.support.sim.brokers import BrokerProcess
from tests.support.sim.controllers import ControllerProcess
from tests.support.sim.simulation import Process

#: Error, operation, kind of file.
Struck = tuple[str, str, str]
#: What a server's start fails with where its disk refuses.
START_ERRORS = (OSError, StoreError)
_DIGITS = re.compile(r"/\d+")
_ERRORS = (errno.ENOSPC, errno.EIO, errno.EMFILE)
#: What each error may strike.
_OPERATIONS = {
    errno.ENOSPC: ("pwrite", "create", "make_dirs", "rename"),
    errno.EIO: ("pwrite", "fsync", "truncate", "rename", "sync_dir", "remove", "pread", "read"),
    errno.EMFILE: ("create", "open", "read", "list", "sync_dir", "lock"),
}
#: What a master needs that writes.
_NEEDED = {
    errno.ENOSPC: ("pwrite", "create", "make_dirs", "rename"),
    errno.EIO: ("pwrite", "fsync", "truncate", "rename", "sync_dir", "remove"),
    errno.EMFILE: ("create", "sync_dir"),
}


def some_fault(chance: Random, process: Process) -> Fault:
    """A fault of any kind at any file of a process: at one that it has used, each as likely as the
    others, or at all."""
    error = chance.choice(_ERRORS)
    operations = _OPERATIONS[error]
    kinds: dict[str, set[str]] = {}
    for operation, path in process.asked:
        if operation in operations:
            kinds.setdefault(kind_of(path), set()).add(operation)
    if kinds and chance.random() < 0.8:
        kind = chance.choice(sorted(kinds))
        operation = chance.choice(sorted(kinds[kind]))
        path = kind.partition("/N")[0]
    else:
        operation, path = chance.choice(operations), ""
    return Fault(
        operation,
        path,
        error,
        skip=chance.choice([0, 0, 1, 5]),
        times=chance.choice([1, 3, None]),
        # Of a read it would be a short one without an error.
        kept=chance.choice([None, 1, 100]) if operation == "pwrite" else None,
    )


def fault_of_a_start(chance: Random, process: Process) -> Fault:
    """One that a start meets, which may go on all the same."""
    fault = some_fault(chance, process)
    fault.skip = chance.choice([0, 0, 1, 5, 20])
    return fault


@contextmanager
def works_for_checks(disk: FaultyFiles) -> Iterator[None]:
    """Whoever looks at what a disk has is refused nothing, and uses up no fault."""
    faults, disk.faults = disk.faults, []
    try:
        yield
    finally:
        disk.faults = faults


def struck_kinds(processes: Iterable[Process]) -> Counter[Struck]:
    """Returns what disks refused: error, operation and kind of file -> how often. Files of a log,
    of queues and of an index are one kind each."""
    kinds: Counter[Struck] = Counter()
    for process in processes:
        for (error, operation, path), count in process.struck.items():
            kinds[errno.errorcode[error], operation, kind_of(path)] += count
    return kinds


def kind_of(path: str) -> str:
    """Returns the path with N for each number."""
    return _DIGITS.sub("/N", path)


def spoil_for_good(chance: Random, broker: BrokerProcess) -> list[Fault]:
    """Makes a broker's disk refuse all that a master needs; returns the faults."""
    error = chance.choice(_ERRORS)
    path = chance.choice(["", "commitlog", "epochFileCheckpoint"])
    operations = _NEEDED[error] if path != "commitlog" else ("pwrite", "fsync")
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
