"""What a power loss or a kill leaves, at every change of some work."""

from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from tests.support.power import aftermaths


def contents(files: MemoryFiles) -> bytes | None:
    return files.read("/a") if files.exists("/a") else None


def test_each_state_that_may_be_left_comes_once() -> None:
    disk = FaultyFiles(MemoryFiles())

    def work() -> None:
        file = disk.open("/a", create=True)
        file.pwrite(b"one", 0)
        file.fsync()
        disk.sync_dir("/")
        file.pwrite(b"two", 0)

    left = [(moment, contents(files)) for moment, files, _ in aftermaths(disk, work)]
    # Killed in front of the first write; without power up to the sync of the name; without it
    # behind that; killed at the end.
    assert left == [(2, b""), (4, None), (6, b"one"), (6, b"two")]


def test_a_random_part_of_what_was_not_synced_may_be_left() -> None:
    disk = FaultyFiles(MemoryFiles())
    file = disk.open("/a", create=True)
    disk.sync_dir("/")
    changes = disk.changes

    def work() -> None:
        for number in range(4):
            file.pwrite(b"x" * 512, 512 * number)

    left = [each.files for each in aftermaths(disk, work, seeds=range(20), kills=False)]
    assert disk.changes == changes + 4
    assert len(left) > 8
    assert len({contents(files) for files in left}) == len(left)
