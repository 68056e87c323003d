"""The power goes away, or the process is killed, at every moment of some work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles


class Aftermath(NamedTuple):
    """Files as the next process finds them, and in front of which change they were left."""

    moment: int
    files: MemoryFiles
    #: What `note` gave then.
    noted: Any


def aftermaths(
    disk: FaultyFiles,
    work: Callable[[], object],
    *,
    seeds: Iterable[int] = (),
    kills: bool = True,
    losses: bool = True,
    note: Callable[[], object] = lambda: None,
) -> Iterator[Aftermath]:
    """Does `work` once and gives what its end at each change of `disk` would have left: with
    `kills` by a kill, with `losses` by a power loss that takes all that was not synced, and for
    each of `seeds` by one that leaves a random part of it.

    What is left in the same way at several moments comes once, as of the last of them: a sync
    changes nothing for the next process after a kill, a write nothing after a power loss. `note`
    returns what was promised by a moment, which may grow and is not taken back. The last ones are
    what the end of the work leaves.
    """
    memory = disk.inner
    assert isinstance(memory, MemoryFiles)
    found: dict[bytes, Aftermath] = {}
    chances = (None, *seeds) if losses else ()
    first = disk.changes

    def look() -> None:
        moment, noted = disk.changes - first + 1, note()
        left = [memory.crash(seed) for seed in chances]
        for files in (*left, memory.kill()) if kills else left:
            digest = files.digest()
            found.pop(digest, None)
            found[digest] = Aftermath(moment, files, noted)

    disk.before_change = look
    work()
    look()
    disk.before_change = lambda: None
    # The files of each are gone once it was looked at.
    while found:
        yield found.pop(next(iter(found)))
