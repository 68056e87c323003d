"""Many seeds of the simulated group, one after the other."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch

from twisted.logger import Logger

from tests.support.interpreter import IS_CPYTHON
from tests.support.sim.checks import Broken
from tests.support.sim.disks import Struck
from tests.support.sim.world import World, simulate

#: Groups between two collections: a group is one large ring of objects.
_GROUPS_PER_COLLECTION = 8


class Outcome(NamedTuple):
    """What came of one seed; `broken` is empty where all promises were kept. `masters` are the
    epochs of masters that were elected, `digest` is of all that happened, `struck` is what disks
    refused: error, operation and kind of file -> how often."""

    seed: int
    broken: str
    acknowledged: int
    masters: int
    digest: str
    struck: Mapping[Struck, int]


@contextmanager
def in_a_hurry() -> Iterator[None]:
    """Nothing is logged, and no garbage is collected in the midst of a group: both took longer than
    the groups themselves. PyPy's collector counts bytes, and works on bit by bit."""
    gc.collect()
    if IS_CPYTHON:
        gc.freeze()
        gc.disable()
    try:
        with patch.object(Logger, "emit", lambda *_, **__: None):
            yield
    finally:
        if IS_CPYTHON:
            gc.enable()
            gc.unfreeze()
        gc.collect()


def run_seeds(seeds: Iterable[int], *, disks_fail: bool = False) -> Iterator[Outcome]:
    """Runs each seed; only what is no broken promise is raised."""
    with in_a_hurry():
        for number, seed in enumerate(seeds, 1):
            try:
                world = simulate(seed, disks_fail=disks_fail)
            except Broken as broken:
                yield Outcome(seed, str(broken), 0, 0, "", {})
            else:
                masters = world.latest.master_epoch
                acknowledged = len(world.checks.acknowledged)
                yield Outcome(seed, "", acknowledged, masters, _digest(world), world.struck)
            if IS_CPYTHON and number % _GROUPS_PER_COLLECTION == 0:
                gc.collect()


def _digest(world: World) -> str:
    return hashlib.sha256("\n".join(world.trace).encode()).hexdigest()
