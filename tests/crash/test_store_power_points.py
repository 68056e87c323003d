"""The power goes away at every single change of a file in a short life of a store."""

import pytest

from rocketmq_tw.files.faulty import FaultyFiles, PowerLoss
from rocketmq_tw.files.memory import MemoryFiles
from tests.support.stores import make_message, open_store, put, read_all


def live(files: FaultyFiles, promised: list[bytes]) -> None:
    """Appends through file rolls, checkpoints, closes, opens again and appends on."""
    number = 0
    for _ in range(2):
        store = open_store(files, flush_disk_type="SYNC_FLUSH")
        for turn in range(9):
            bodies = [b"%d " % (number + n) + bytes(300) for n in range(3)]
            number += 3
            put(store, *[make_message(body, keys="k") for body in bodies])
            promised += bodies
            if turn == 3:
                store.checkpoint()
            if turn == 6 and (write := store.prepare_checkpoint(thorough=False)):
                write()
        store.close()


def count_changes() -> int:
    files = FaultyFiles(MemoryFiles())
    live(files, [])
    return files.changes


@pytest.mark.parametrize("part", range(8))
def test_every_moment_of_a_power_loss(part: int) -> None:
    for moment in range(1 + part, count_changes() + 1, 8):
        memory = MemoryFiles()
        files = FaultyFiles(memory)
        files.lose_power_at = moment
        promised: list[bytes] = []
        with pytest.raises(PowerLoss):
            live(files, promised)
        for seed in (None, 1, 2):
            store = open_store(memory.crash(seed), flush_disk_type="SYNC_FLUSH")
            found = [message.body for message in read_all(store)]
            assert found[: len(promised)] == promised, (moment, seed)
            offset = store.append(make_message(b"next")).queue_offset
            assert offset == len(found), (moment, seed)
