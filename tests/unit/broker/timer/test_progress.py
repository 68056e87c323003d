import struct

from rocketmq_tw.broker.timer.progress import (
    TimerCheckpoint,
    TimerProgress,
    decode_timer_checkpoint,
)
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
    encode = progress.pending_write()
    assert encode is not None
    progress.write(encode())


def test_the_file_is_stocks() -> None:
    files = MemoryFiles()
    progress = loaded(files)
    assert progress.pending_write() is None
    progress.follow(OWN)
    write(progress)
    data = files.read("/s/config/timercheck")
    # Stock's RandomAccessFile maps a page and reads seven longs from its beginning.
    assert len(data) == 4096
    assert struct.unpack(">7q", data[:56]) == (OWN.read_ms, 0, 0, 9, 0, OWN.timestamp, 3)
    assert loaded(files).checkpoint == decode_timer_checkpoint(data)
    assert progress.pending_write() is None


def test_a_slave_follows_and_never_goes_back() -> None:
    progress = TimerProgress(MemoryFiles(), "/s/config")
    progress.checkpoint = OWN
    progress.follow(TimerCheckpoint(read_ms=OWN.read_ms + 1, master_queue_offset=4, counter=4))
    assert progress.checkpoint == OWN._replace(read_ms=OWN.read_ms + 1, timestamp=0, counter=4), (
        "its own two fields and the larger offset stay"
    )


def test_a_damaged_file_is_no_reason_not_to_start() -> None:
    files = MemoryFiles()
    progress = loaded(files)
    progress.follow(OWN)
    write(progress)
    files.open("/s/config/timercheck").truncate(50)
    assert loaded(files).checkpoint is None


def test_a_write_that_failed_is_due_again() -> None:
    progress = TimerProgress(MemoryFiles(), "/s/config")
    progress.follow(OWN)
    assert progress.pending_write() is not None
    assert progress.pending_write() is None
    progress.write_failed()
    assert progress.pending_write() is not None
