"""Faults of simulated disks are of every kind, at every file that was used."""

from __future__ import annotations

import errno
from random import Random
from types import SimpleNamespace
from typing import Any

from tests.support.sim.disks import kind_of, some_fault

_ASKED = {
    ("pwrite", "/store/commitlog/00000000000000000000"),
    ("fsync", "/store/commitlog/00000000000000000000"),
    ("open", "/store/consumequeue/Topic/0/00000000000000000000"),
    ("read", "/store/config/topics.json"),
    ("rename", "/store/config/topics.json"),
    ("create", "/store/epochFileCheckpoint"),
}


def test_each_error_strikes_each_file_that_may_have_it() -> None:
    process: Any = SimpleNamespace(asked=_ASKED)
    chance = Random(1)
    faults = [some_fault(chance, process) for _ in range(2_000)]
    assert {fault.error for fault in faults} == {errno.ENOSPC, errno.EIO, errno.EMFILE}
    struck = {
        (operation, kind_of(path))
        for operation, path in _ASKED
        if any(fault.strikes(operation, path) for fault in faults)
    }
    assert struck == {(operation, kind_of(path)) for operation, path in _ASKED}
