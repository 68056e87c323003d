"""What a crash leaves of files in memory; and the same contract for the real ones."""

import pytest

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.files.posix import PosixFiles


@pytest.fixture(params=["memory", "posix"])
def place(request, tmp_path):
    """A file system and a directory in it that is there."""
    if request.param == "posix":
        return PosixFiles(), str(tmp_path)
    files = MemoryFiles()
    files.make_dirs("/base")
    return files, "/base"


def test_what_is_written_reads_back_and_holes_are_zeros(place) -> None:
    files, base = place
    file = files.open(f"{base}/a", create=True)
    file.pwritev([b"one", bytearray(b"two"), memoryview(b"three")], 5)
    assert file.pread(100, 0) == bytes(5) + b"onetwothree"
    assert file.pread(3, 8) == b"two"
    assert file.pread(5, 100) == b""
    file.truncate(7)
    file.truncate(9)
    assert files.read(f"{base}/a") == bytes(5) + b"on" + bytes(2)
    assert file.size() == 9


def test_more_buffers_than_one_call_takes(place) -> None:
    files, base = place
    file = files.open(f"{base}/a", create=True)
    file.pwritev([b"%04d" % n for n in range(3000)], 4)
    assert file.pread(12000, 4) == b"".join(b"%04d" % n for n in range(3000))


def test_an_open_file_knows_whether_its_path_still_names_it(place) -> None:
    files, base = place
    files.make_dirs(f"{base}/d")
    file = files.lock(f"{base}/d/lock")
    assert file.is_at(f"{base}/d/lock")
    files.rename(f"{base}/d", f"{base}/away")
    assert not file.is_at(f"{base}/d/lock") and file.is_at(f"{base}/away/lock")
    files.make_dirs(f"{base}/d")
    files.open(f"{base}/d/lock", create=True).close()
    assert not file.is_at(f"{base}/d/lock")
    files.remove_tree(f"{base}/away")
    assert not file.is_at(f"{base}/away/lock")


def test_names(place) -> None:
    files, base = place
    with pytest.raises(FileNotFoundError):
        files.open(f"{base}/a")
    with pytest.raises(FileNotFoundError):
        files.read(f"{base}/a")
    with pytest.raises(FileNotFoundError):
        files.remove(f"{base}/a")
    with pytest.raises(FileNotFoundError):
        files.open(f"{base}/missing/a", create=True)
    assert files.list(f"{base}/missing") == []
    files.make_dirs(f"{base}/d/e")
    files.make_dirs(f"{base}/d/e")
    files.open(f"{base}/d/e/f", create=True).close()
    files.open(f"{base}/b", create=True).pwrite(b"b", 0)
    files.rename(f"{base}/b", f"{base}/c")
    assert files.list(base) == ["c", "d"]
    assert files.exists(f"{base}/d/e") and not files.exists(f"{base}/b")
    files.remove_tree(f"{base}/d")
    files.remove_tree(f"{base}/d")
    assert files.list(base) == ["c"]
    assert 0 < files.usage(base).used < files.usage(base).total


def test_a_file_with_two_names(place) -> None:
    files, base = place
    files.open(f"{base}/a", create=True).pwrite(b"1", 0)
    with pytest.raises(FileNotFoundError):
        files.link(f"{base}/missing", f"{base}/b")
    files.link(f"{base}/a", f"{base}/b")
    with pytest.raises(FileExistsError):
        files.link(f"{base}/a", f"{base}/b")
    files.open(f"{base}/b").pwrite(b"2", 0)
    assert files.read(f"{base}/a") == b"2"
    files.rename(f"{base}/a", f"{base}/b")
    assert files.list(base) == ["a", "b"], "a rename between its names changes nothing"
    files.remove(f"{base}/a")
    assert files.read(f"{base}/b") == b"2"


def test_a_lock_keeps_a_second_one_out_until_it_is_closed(place) -> None:
    files, base = place
    lock = files.lock(f"{base}/lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{base}/lock")
    lock.close()
    files.lock(f"{base}/lock").close()


def test_a_closed_file_is_closed(place) -> None:
    files, base = place
    file = files.open(f"{base}/a", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError):
        file.pread(1, 0)


def test_a_crash_keeps_only_what_was_synced() -> None:
    files = MemoryFiles()
    files.make_dirs("/d")
    file = files.open("/d/a", create=True)
    file.pwrite(b"safe", 0)
    file.fsync()
    files.sync_dir("/d")
    file.pwrite(b"lost", 4)
    after = files.crash()
    assert after.read("/d/a") == b"safe"
    assert files.read("/d/a") == b"safelost"


def test_a_name_that_was_not_synced_is_lost_with_its_file() -> None:
    files = MemoryFiles()
    files.make_dirs("/d")
    files.open("/d/a", create=True).fsync()
    assert not files.crash().exists("/d/a")


def test_a_removal_or_a_rename_that_was_not_synced_may_be_undone() -> None:
    files = MemoryFiles()
    files.make_dirs("/d")
    for name, data in (("/d/a", b"old"), ("/d/b", b"new")):
        file = files.open(name, create=True)
        file.pwrite(data, 0)
        file.fsync()
    files.sync_dir("/d")
    files.rename("/d/b", "/d/a")
    assert files.crash().read("/d/a") == b"old"
    files.sync_dir("/d")
    assert files.crash().read("/d/a") == b"new"
    assert not files.crash().exists("/d/b")


def test_a_seeded_crash_keeps_a_part_and_is_the_same_each_time() -> None:
    files = MemoryFiles()
    files.make_dirs("/d")
    file = files.open("/d/a", create=True)
    file.truncate(8192)
    file.fsync()
    files.sync_dir("/d")
    for sector in range(16):
        file.pwrite(bytes([sector + 1]) * 512, sector * 512)
    images = [files.crash(seed).read("/d/a") for seed in range(10)]
    assert images == [files.crash(seed).read("/d/a") for seed in range(10)]
    assert len(set(images)) > 1
    assert all(len(image) == 8192 for image in images)


def test_a_kill_loses_nothing_that_was_written_but_the_locks() -> None:
    files = MemoryFiles()
    files.make_dirs("/d")
    files.lock("/d/lock")
    files.open("/d/a", create=True).pwrite(b"written", 0)
    after = files.kill()
    assert after.read("/d/a") == b"written"
    after.lock("/d/lock")
    assert not after.crash().exists("/d/a")


def test_make_dirs_without_durability() -> None:
    files = MemoryFiles()
    files.make_dirs("/d/e", durable=False)
    assert not files.crash().exists("/d")
    files.sync_dir("/")
    files.sync_dir("/d")
    assert files.crash().exists("/d/e")


def test_a_directory_moves_with_all_that_is_in_it(place) -> None:
    files, base = place
    files.make_dirs(f"{base}/d/e")
    files.make_dirs(f"{base}/full/of")
    files.open(f"{base}/d/e/f", create=True).pwrite(b"f", 0)
    with pytest.raises(OSError):
        files.rename(f"{base}/d", f"{base}/full")
    with pytest.raises(FileNotFoundError):
        files.rename(f"{base}/d", f"{base}/missing/d")
    files.rename(f"{base}/d", f"{base}/full/d")
    assert files.read(f"{base}/full/d/e/f") == b"f"
    assert not files.exists(f"{base}/d")


def test_a_crash_leaves_a_moved_directory_at_one_of_both_places() -> None:
    found = set()
    for seed in (None, *range(40)):
        files = MemoryFiles()
        files.make_dirs("/a/d")
        files.make_dirs("/b")
        files.open("/a/d/f", create=True).close()
        files.sync_dir("/a/d")
        files.rename("/a/d", "/b/d")
        # Of the one that is made in its place nothing shows in the former one.
        files.make_dirs("/a/d", durable=False)
        after = files.crash(seed)
        assert after.exists("/a/d/f") != after.exists("/b/d/f")
        found.add((after.exists("/a/d"), after.exists("/b/d")))
    assert found == {(True, False), (True, True), (False, True)}


def test_a_removed_directory_that_comes_back_does_not_fill_its_successor() -> None:
    files = MemoryFiles()
    files.make_dirs("/a/d")
    files.open("/a/d/f", create=True).close()
    files.sync_dir("/a/d")
    files.remove_tree("/a/d")
    files.make_dirs("/a/d", durable=False)
    assert files.crash().list("/a/d") == ["f"]
    files.sync_dir("/a")
    assert files.crash().list("/a/d") == []


@pytest.mark.parametrize("synced", ["here", "there"])
@pytest.mark.parametrize("name", ["directory", "file"])
def test_a_move_is_durable_on_both_sides_or_on_none(synced, name) -> None:
    files = MemoryFiles()
    files.make_dirs("here/directory")
    files.make_dirs("there")
    files.open("here/file", create=True)
    files.sync_dir("here")
    files.rename(f"here/{name}", f"there/{name}")
    after = files.crash()
    assert after.list("here") == ["directory", "file"] and after.list("there") == []
    files = files.kill()
    files.sync_dir(synced)
    after = files.crash()
    assert name not in after.list("here") and after.list("there") == [name]


def test_a_move_takes_earlier_ones_of_its_directories_along() -> None:
    files = MemoryFiles()
    for name in ("a", "b", "c"):
        files.make_dirs(name)
    files.open("b/x", create=True)
    files.open("a/y", create=True)
    files.sync_dir("a")
    files.sync_dir("b")
    files.rename("b/x", "c/x")
    files.rename("a/y", "b/x")
    files.sync_dir("a")
    after = files.crash()
    assert (after.list("a"), after.list("b"), after.list("c")) == ([], ["x"], ["x"])


def test_a_digest_is_of_what_is_read() -> None:
    files = MemoryFiles()
    file = files.open("/a", create=True)
    file.pwrite(b"x", 5000)
    digest = files.digest()
    file.fsync()
    file.pwrite(bytes(100), 0)
    assert files.kill().digest() == files.digest() == digest
    file.pwrite(b"y", 0)
    assert files.digest() != digest
    file.truncate(1)
    assert files.digest() != digest
    files.rename("/a", "/b")
    assert files.digest() not in (digest, files.crash().digest())
