import struct

import pytest

from rocketmq_tw.broker.timer.progress import (
    TimerCheckpoint,
    TimerProgress,
    decode_timer_checkpoint,
)
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles

OWN = TimerCheckpoint(
    read_ms=1_700_000_000_000,
    log_position=104,
    queue_offset=7,
    master_queue_offset=9,
    state_version=0,
    timestamp=1_700_000_000_500,
    counter=3,
)


def loaded(files: MemoryFiles) -> TimerProgress:
    progress = TimerProgress(files, "/s/config")
    progress.load()
    return progress


def write(progress: TimerProgress) -> None:
    assert progress.checkpoint is not None and progress.is_dirty
    progress.write(progress.checkpoint)
    progress.take(progress.checkpoint)


def test_the_file_is_stocks() -> None:
    files = MemoryFiles()
    progress = loaded(files)
    assert not progress.is_dirty
    progress.follow(OWN)
    write(progress)
    data = files.read("/s/config/timercheck")
    # Stock's RandomAccessFile maps a page and reads seven longs from its beginning.
    assert len(data) == 4096
    assert struct.unpack(">7q", data[:56]) == (OWN.read_ms, 0, 0, 9, 0, OWN.timestamp, 3)
    assert loaded(files).checkpoint == decode_timer_checkpoint(data)
    assert not progress.is_dirty


def test_a_slave_follows_both_that_belong_together_and_keeps_its_own_two() -> None:
    progress = TimerProgress(MemoryFiles(), "/s/config")
    followed: list[int] = []
    progress.followed.add(lambda: followed.append(progress.checkpoint.read_ms))
    progress.checkpoint = OWN
    progress.follow(TimerCheckpoint(read_ms=OWN.read_ms + 1, master_queue_offset=4, counter=4))
    expected = OWN._replace(read_ms=OWN.read_ms + 1, master_queue_offset=4, timestamp=0, counter=4)
    assert progress.checkpoint == expected
    # As after a kill of the master.
    progress.follow(TimerCheckpoint(read_ms=OWN.read_ms - 2000, master_queue_offset=3, counter=4))
    assert progress.checkpoint == expected._replace(
        read_ms=OWN.read_ms - 2000, master_queue_offset=3
    )
    assert followed == [OWN.read_ms + 1, OWN.read_ms - 2000]


def test_a_master_that_lost_its_file_is_not_followed() -> None:
    progress = TimerProgress(MemoryFiles(), "/s/config")
    progress.checkpoint = OWN
    progress.follow(TimerCheckpoint())
    assert progress.checkpoint == OWN


def test_a_master_whose_clock_was_set_back_is_followed() -> None:
    progress = TimerProgress(MemoryFiles(), "/s/config")
    progress.checkpoint = OWN
    master = OWN._replace(read_ms=OWN.read_ms - 30 * 86_400_000, counter=OWN.counter + 1)
    progress.follow(master)
    assert progress.checkpoint == master


def test_a_damaged_file_is_no_reason_not_to_start() -> None:
    files = MemoryFiles()
    progress = loaded(files)
    progress.follow(OWN)
    write(progress)
    files.open("/s/config/timercheck").truncate(50)
    assert loaded(files).checkpoint is None


def test_no_power_loss_takes_a_log_position_that_a_start_noted() -> None:
    """A file that was renamed is read back, though the sync of its directory failed."""
    memory = MemoryFiles()
    TimerProgress(memory, "/s/config").write(TimerCheckpoint(log_position=500))
    files = FaultyFiles(memory)
    files.faults.append(Fault("sync_dir", times=1))
    with pytest.raises(OSError):
        TimerProgress(files, "/s/config").write(TimerCheckpoint(log_position=100))
    progress = TimerProgress(files, "/s/config")
    progress.load()
    progress.note_log_position(100)
    assert loaded(memory.crash()).checkpoint == TimerCheckpoint(log_position=100)
