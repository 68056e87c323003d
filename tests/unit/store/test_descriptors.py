"""A store whose process has no descriptor left, as where idle connections took all."""

import errno

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.errors import NotWritableError
from tests.support.stores import make_message, open_store, put, read_all


def test_the_log_rolls_and_checkpoints_come_from_the_reserve() -> None:
    disk = FaultyFiles(MemoryFiles())
    store = open_store(disk)
    put(store, make_message(bytes(900)))
    disk.descriptors = disk.open_files
    for _ in range(30):
        put(store, make_message(bytes(900)))
        store.checkpoint()
    assert len(read_all(store)) == 31
    store.close()
    assert open_store(disk.inner.kill()).report.clean


def test_many_queues_leave_the_reserve_to_the_log() -> None:
    disk = FaultyFiles(MemoryFiles())
    store = open_store(disk)
    put(store, make_message())
    disk.descriptors = disk.open_files
    for queue_id in range(100):
        put(store, make_message(bytes(900), queue_id=queue_id))
        store.checkpoint()
    assert all(read_all(store, queue_id=queue_id) for queue_id in range(100))


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("operation", ["create", "open", "sync_dir"])
def test_what_no_reserve_helps_against_passes(operation: str, error: int) -> None:
    disk = FaultyFiles(MemoryFiles())
    store = open_store(disk)
    put(store, *[make_message(b"%d" % n + bytes(900)) for n in range(4)])
    disk.faults.append(Fault(operation, "commitlog", error))
    for number in range(4):
        store.append(make_message(b"lost %d" % number + bytes(900)))
    with pytest.raises(NotWritableError, match="cannot be written"):
        store.write_pending()
    disk.faults.clear()
    assert store.refusal == ""
    put(store, make_message(b"later"))
    bodies = [message.body.strip(b"\0") for message in read_all(store)]
    assert bodies == [b"0", b"1", b"2", b"3", b"later"]
    store.close()
    after = open_store(disk.inner.kill())
    assert len(read_all(after)) == 5 and after.report.clean
