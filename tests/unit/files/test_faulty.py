"""Each fault does what it says."""

import errno

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
from rocketmq_tw.files.memory import MemoryFiles


@pytest.fixture
def files() -> FaultyFiles:
    faulty = FaultyFiles(MemoryFiles())
    faulty.make_dirs("/d")
    return faulty


def test_without_faults_it_is_the_inner_one(files: FaultyFiles) -> None:
    file = files.open("/d/a", create=True)
    file.pwritev([b"ab", b"c"], 0)
    file.truncate(5)
    file.fsync()
    files.sync_dir("/d")
    files.rename("/d/a", "/d/b")
    assert files.read("/d/b") == b"abc\0\0"
    assert files.list("/d") == ["b"]
    assert file.size() == 5


def test_a_torn_write_leaves_its_first_bytes(files: FaultyFiles) -> None:
    file = files.open("/d/a", create=True)
    files.faults.append(Fault("pwrite", "/a", kept=2, times=1))
    with pytest.raises(OSError) as caught:
        file.pwrite(b"abcd", 0)
    assert caught.value.errno == errno.EIO
    assert files.read("/d/a") == b"ab"
    file.pwrite(b"abcd", 0)
    assert files.read("/d/a") == b"abcd"


def test_a_full_disk_takes_what_fits(files: FaultyFiles) -> None:
    file = files.open("/d/a", create=True)
    files.room = 5
    file.pwrite(b"abc", 0)
    with pytest.raises(OSError) as caught:
        file.pwrite(b"defg", 3)
    assert caught.value.errno == errno.ENOSPC
    assert files.read("/d/a") == b"abcde"


def test_an_fsync_that_fails_and_one_that_lies(files: FaultyFiles) -> None:
    file = files.open("/d/a", create=True)
    files.sync_dir("/d")
    file.pwrite(b"abc", 0)
    files.faults = [Fault("fsync", times=1), Fault("fsync", silent=True, times=1)]
    with pytest.raises(OSError):
        file.fsync()
    file.fsync()
    assert isinstance(files.inner, MemoryFiles)
    assert files.inner.crash().read("/d/a") == b""
    file.pwrite(b"abc", 0)
    file.fsync()
    assert files.inner.crash().read("/d/a") == b"abc"


def test_a_failed_fsync_loses_what_was_not_synced(files: FaultyFiles) -> None:
    memory = files.inner
    assert isinstance(memory, MemoryFiles)
    file = files.open("/d/a", create=True)
    files.sync_dir("/d")
    file.truncate(6)
    file.pwrite(b"ab", 0)
    file.fsync()
    file.pwrite(b"cd", 2)
    file.truncate(5)
    files.faults = [Fault("fsync", times=1)]
    with pytest.raises(OSError):
        file.fsync()
    assert files.read("/d/a") == memory.kill().read("/d/a") == b"abcd\0"
    files.open("/d/a").fsync()
    assert memory.crash().read("/d/a") == memory.kill().crash().read("/d/a") == b"ab\0\0\0"
    file.pwrite(b"d", 3)
    file.fsync()
    assert memory.crash().read("/d/a") == b"ab\0d\0"


def test_skip_counts_calls_on_matching_paths_only(files: FaultyFiles) -> None:
    fault = Fault("open", "/a", skip=1, error=errno.EMFILE)
    files.faults.append(fault)
    files.open("/d/a", create=True)
    files.open("/d/b", create=True)
    files.open("/d/a")
    with pytest.raises(OSError):
        files.open("/d/a")
    assert fault.hits == 1


def test_a_short_or_failing_read(files: FaultyFiles) -> None:
    file = files.open("/d/a", create=True)
    file.pwrite(b"abcd", 0)
    files.faults = [Fault("pread", kept=2, times=1), Fault("pread", times=1)]
    assert file.pread(4, 0) == b"ab"
    with pytest.raises(OSError):
        file.pread(4, 0)
    assert file.pread(4, 0) == b"abcd"


def test_after_a_power_loss_nothing_goes_any_more(files: FaultyFiles) -> None:
    file = files.open("/d/a", create=True)
    files.lose_power_at = files.changes + 2
    file.pwrite(b"a", 0)
    for call in (lambda: file.pwrite(b"b", 1), file.fsync, lambda: files.remove("/d/a")):
        with pytest.raises(PowerLoss):
            call()
    assert files.read("/d/a") == b"a"
