"""Descriptors kept in reserve."""

import errno

import pytest
from zope.interface.verify import verifyObject

from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.files.reserve import ReservingFiles


@pytest.fixture
def disk() -> FaultyFiles:
    disk = FaultyFiles(MemoryFiles())
    disk.open("/kept", create=True).close()
    return disk


def test_a_call_without_a_descriptor_takes_one_of_the_reserve(disk: FaultyFiles) -> None:
    files = ReservingFiles(disk, 3)
    assert verifyObject(IFiles, files)
    files.keep("/kept")
    assert disk.open_files == 3
    disk.descriptors = 3
    first = files.open("/a", create=True)
    files.sync_dir("/")
    assert files.read("/a") == b""
    second = files.open("/b", create=True)
    assert disk.open_files <= 3
    files.open("/c", create=True)
    with pytest.raises(OSError) as refused:
        files.open("/d", create=True)
    assert refused.value.errno == errno.EMFILE
    first.close()
    second.close()
    disk.descriptors = 100
    files.open("/d", create=True)
    assert disk.open_files == 1 + 1 + 3, "the reserve is full again"
    files.give_up()
    assert disk.open_files == 2


def test_other_errors_pass(disk: FaultyFiles) -> None:
    files = ReservingFiles(disk, 3)
    files.keep("/kept")
    with pytest.raises(FileNotFoundError):
        files.open("/missing")
    assert disk.open_files == 3
