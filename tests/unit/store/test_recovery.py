"""A store opens again, whatever was done to its files."""

import errno
import shutil
from pathlib import Path

import pytest

from rocketmq_tw.config.change import change
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.message.layout import MAGIC_V1
from rocketmq_tw.store.checkpoint import read_checkpoint, write_checkpoint
from rocketmq_tw.store.errors import DamagedStoreError, NotWritableError, StoreError
from rocketmq_tw.store.message_store import MessageStore
from tests.support.stores import (
    ROOT,
    ManualClock,
    by_key,
    cut,
    make_message,
    open_store,
    put,
    queues_of,
    read_all,
    small_config,
)

LOG = f"{ROOT}/commitlog"
QUEUE = f"{ROOT}/consumequeue/Topic/0"


MAGIC = MAGIC_V1.to_bytes(4, "big", signed=True)


def filled(count: int, files: MemoryFiles, *, size: int = 200) -> list[bytes]:
    """A store with `count` messages that was closed; their bodies."""
    store = open_store(files)
    bodies = [b"%d " % n + bytes(size) for n in range(count)]
    put(store, *[make_message(body, keys=f"k{n}") for n, body in enumerate(bodies)])
    store.close()
    return bodies


def bodies_of(store: MessageStore) -> list[bytes]:
    return [message.body for message in read_all(store)]


def killed(files: MemoryFiles) -> MemoryFiles:
    """As after a kill -9 of a store that had no checkpoint."""
    files.open(f"{ROOT}/abort", create=True)
    if files.exists(f"{ROOT}/checkpoint"):
        files.remove(f"{ROOT}/checkpoint")
    return files.kill()


def overwrite_new(files: MemoryFiles, path: str, data: bytes) -> None:
    files.open(path, create=True).pwrite(data, 0)


def overwrite(files: MemoryFiles, path: str, offset: int, data: bytes) -> None:
    files.open(path).pwrite(data, offset)


def test_a_clean_stop_leaves_no_abort_and_needs_no_scan(files: MemoryFiles) -> None:
    bodies = filled(40, files)
    assert not files.exists(f"{ROOT}/abort")
    store = open_store(files.kill())
    assert bodies_of(store) == bodies
    assert store.report is not None and store.report.records == 0
    assert store.append(make_message()).queue_offset == 40


def test_abort_has_the_process_id_while_the_store_is_open(files: MemoryFiles) -> None:
    open_store(files)
    assert files.read(f"{ROOT}/abort").isdigit()


def test_a_second_store_on_the_same_files_is_refused(files: MemoryFiles) -> None:
    open_store(files)
    with pytest.raises(StoreError, match="in use"):
        open_store(files)


def test_torn_last_record(files: MemoryFiles) -> None:
    bodies = filled(10, files)
    store = open_store(files)
    (last,) = put(store, make_message(b"torn", keys="torn"))
    files = killed(files)
    overwrite(files, f"{LOG}/{0:020d}", last + 70, bytes(40))
    store = open_store(files)
    assert bodies_of(store) == bodies
    assert store.end_offset == last
    assert by_key(store, "Topic", "torn", 10, 0, 1 << 62) == []
    appended = store.append(make_message(b"new"))
    assert (appended.physical_offset, appended.queue_offset) == (last, 10)


@pytest.mark.parametrize("length", [1, 40, 500, 511, 1100])
def test_zeros_in_properties_never_end_the_log(files: MemoryFiles, length: int) -> None:
    """Users put what they like into values, also what a lost sector looks like."""
    store = open_store(files, flush_disk_type="SYNC_FLUSH")
    for number in range(8):
        value = b"v" * (37 * number) + b"\0" * length
        put(store, make_message(b"%d" % number, properties=b"K\x01" + value + b"\x02L\x01w"))
        put(store, make_message(b"%d end" % number, properties=b"K\x01" + value))
    expected = [b"%d%b" % (n, end) for n in range(8) for end in (b"", b" end")]
    store = open_store(killed(files.crash()))
    assert bodies_of(store) == expected
    assert store.report is not None
    noted = [note for note in store.report.notes if "zeros" in note]
    assert len(noted) == 16 if length > 1022 else len(noted) < 16


@pytest.mark.parametrize("flipped", [0x80, 0x40, 0x01])
def test_bit_flip_in_a_queue_offset(files: MemoryFiles, flipped: int) -> None:
    """No checksum covers it. A queue must not be filled up to an offset that so few bytes of log
    cannot account for: that would take all memory."""
    bodies = filled(6, files)
    log = f"{ROOT}/commitlog/00000000000000000000"
    with_flip = files.read(log)
    third = [at for at in range(len(with_flip)) if with_flip.startswith(MAGIC, at)][2]
    overwrite(files, log, third + 16, bytes((flipped,)))
    store = open_store(killed(files))
    found = bodies_of(store)
    assert found[:2] == bodies[:2] and found[-3:] == bodies[3:]
    assert store.max_queue_offset("Topic", 0) == 6
    assert any("queue offset" in note for note in store.report.notes)


@pytest.mark.parametrize(
    ("wrong_id", "said"),
    [
        (1, ["it says that it is 1 of Topic/1, as the one at", "2 of Topic/0, which had come"]),
        (7, ["1 of Topic/7, which nothing else is in", "2 of Topic/0, which had come to 1"]),
    ],
)
def test_a_queue_id_that_changed_is_told(
    files: MemoryFiles, wrong_id: int, said: list[str]
) -> None:
    """No checksum covers it: a start takes the record as it stands, where the queues are made
    again from the log."""
    store = open_store(files)
    put(store, *[make_message(b"%d" % number, queue_id=number % 3) for number in range(9)])
    store.close()
    log = f"{ROOT}/commitlog/00000000000000000000"
    data = files.read(log)
    starts = [at for at in range(len(data)) if data.startswith(MAGIC, at)]
    overwrite(files, log, starts[3] + 8, wrong_id.to_bytes(4, "big"))
    for queue_id in range(3):
        files.remove(f"{ROOT}/consumequeue/Topic/{queue_id}/00000000000000000000")
    store = open_store(killed(files))
    assert store.report is not None
    for text in said:
        assert any(text in note for note in store.report.notes), store.report.notes


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_queue_offset_that_became_0_ends_no_queue(files: MemoryFiles, number: int) -> None:
    bodies = filled(6, files)
    log = f"{ROOT}/commitlog/00000000000000000000"
    data = files.read(log)
    starts = [at for at in range(len(data)) if data.startswith(MAGIC, at)]
    assert data[starts[number] + 16 : starts[number] + 24] == number.to_bytes(8, "big")
    overwrite(files, log, starts[number] + 16, bytes(8))
    store = open_store(killed(files))
    found = bodies_of(store)
    assert found[:number] == bodies[:number]
    assert found[number - 6 + 1 :] == bodies[number + 1 :]
    assert store.max_queue_offset("Topic", 0) == 6
    assert any("queue offset 0" in note for note in store.report.notes)


@pytest.mark.parametrize("dispatched", [0, 1, 2])
@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_a_replica_killed_before_it_dispatched_what_a_topic_begins_anew_with(
    files: MemoryFiles, dispatched: int, with_checkpoint: bool
) -> None:
    """Its master deleted the topic, and its tables are not copied yet. Nobody says at a start
    whether the log is a copy: the broker's role may have been another one, or is not known yet."""
    master = open_store(MemoryFiles())
    for queue_id in (0, 1):
        put(master, *[make_message(b"old %d" % n, queue_id=queue_id) for n in range(5)])
    put(master, make_message(topic="Other"))
    old_end = master.end_offset
    master.remove_topics(["Topic"])
    put(master, *[make_message(b"new %d" % n) for n in range(3)])
    put(master, make_message(b"new", queue_id=1))
    replica = open_store(files)

    def append_up_to(end: int) -> None:
        start = replica.end_offset
        replica.append_raw(start, master.read_log(start, end - start))
        replica.write_pending()

    append_up_to(old_end)
    replica.dispatch()
    if with_checkpoint:
        replica.checkpoint()
    if dispatched:
        first = master.message_at(old_end)
        assert first is not None
        append_up_to(old_end + first.store_size * dispatched)
        replica.dispatch()
    append_up_to(master.end_offset)
    for _ in range(2):
        replica = open_store(files := files.kill())
        assert bodies_of(replica) == [b"new 0", b"new 1", b"new 2"]
        assert [message.body for message in read_all(replica, "Topic", 1)] == [b"new"]
        assert len(read_all(replica, "Other")) == 1
        assert replica.append(make_message()).queue_offset == 3


def test_what_a_former_replica_has_not_dispatched_begins_anew_as_a_master_too(
    files: MemoryFiles,
) -> None:
    master = open_store(MemoryFiles())
    put(master, *[make_message(b"old %d" % n) for n in range(5)])
    master.remove_topics(["Topic"])
    put(master, make_message(b"new"))
    copies = [True]
    replica = open_store(files, is_copy=lambda: copies[-1])
    replica.append_raw(0, master.read_log(0, master.end_offset))
    replica.write_pending()
    replica.fsync()
    copies.append(False)
    replica.dispatch()
    assert bodies_of(replica) == [b"new"]


def test_bit_flip_in_the_last_body(files: MemoryFiles) -> None:
    bodies = filled(10, files)
    store = open_store(files)
    (last,) = put(store, make_message(b"flipped"))
    files = killed(files)
    overwrite(files, f"{LOG}/{0:020d}", last + 90, b"F")
    assert bodies_of(open_store(files)) == bodies


def test_zeroed_tail(files: MemoryFiles) -> None:
    filled(12, files)
    store = open_store(files)
    message = store.message_at(0)
    assert message is not None
    cut = message.store_size * 5
    files = killed(files)
    overwrite(files, f"{LOG}/{0:020d}", cut, bytes(4096 - cut))
    assert len(bodies_of(open_store(files))) == 5


def test_what_stood_behind_a_torn_record_never_comes_back(files: MemoryFiles) -> None:
    """Older whole records behind the cut must not join a log that grows up to them again."""
    filled(6, files)
    files = killed(files)
    message = open_store(files).message_at(0)
    assert message is not None
    size = message.store_size
    files = killed(files)
    overwrite(files, f"{LOG}/{0:020d}", size + 4, bytes(8))
    store = open_store(files)
    assert len(bodies_of(store)) == 1
    put(store, make_message(b"9 " + bytes(200), keys="k9"))
    store = open_store(killed(files))
    assert [body[:2] for body in bodies_of(store)] == [b"0 ", b"9 "]


def test_a_bit_flip_before_the_checkpoint_truncates_nothing_and_is_not_served(
    files: MemoryFiles,
) -> None:
    bodies = filled(10, files)
    files = files.kill()
    overwrite(files, f"{LOG}/{0:020d}", 95, b"?")
    store = open_store(files)
    assert bodies_of(store) == bodies[1:]
    assert store.message_at(0) is None


def test_damage_in_front_of_what_the_checkpoint_says_is_safe_is_refused(
    files: MemoryFiles,
) -> None:
    filled(40, files)
    image = files.read(f"{LOG}/{0:020d}")
    files = files.kill()
    files.open(f"{ROOT}/abort", create=True)
    checkpoint = bytearray(files.read(f"{ROOT}/checkpoint"))
    checkpoint[64:] = bytes(len(checkpoint) - 64)
    checkpoint[0:16] = (1_800_000_000_000).to_bytes(8, "big") * 2
    overwrite(files, f"{ROOT}/checkpoint", 0, bytes(checkpoint))
    files.remove_tree(f"{ROOT}/consumequeue")
    overwrite(files, f"{LOG}/{0:020d}", 95, b"?")
    for _ in range(3):
        with pytest.raises(DamagedStoreError, match="restore"):
            open_store(files)
        files = files.kill()
    overwrite(files, f"{LOG}/{0:020d}", 0, image)
    assert len(bodies_of(open_store(files.kill()))) == 40


@pytest.mark.parametrize("stop", ["clean", "killed"])
@pytest.mark.parametrize("loses_power", [False, True])
def test_a_start_that_is_refused_while_queues_are_built_again_is_refused_again(
    loses_power: bool, stop: str, files: MemoryFiles
) -> None:
    """A supervisor starts it over and over. What was built meanwhile is not safe."""
    files, bodies = stopped(stop, files)
    image = files.read(f"{LOG}/{4096:020d}")
    files.remove_tree(f"{ROOT}/consumequeue")
    overwrite(files, f"{LOG}/{4096:020d}", 95, b"?")
    files.open(f"{LOG}/{4096:020d}").fsync()
    files.sync_dir(ROOT)
    for _ in range(3):
        with pytest.raises(DamagedStoreError, match="in front of 12596 up to where"):
            open_store(files)
        files = files.crash() if loses_power else files.kill()
    overwrite(files, f"{LOG}/{4096:020d}", 0, image)
    for _ in range(2):
        assert bodies_of(open_store(files)) == bodies
        files = files.kill()


def test_queues_rebuilt_across_the_ends_of_files(files: MemoryFiles) -> None:
    bodies = filled(40, files)
    assert len(files.list(LOG)) > 2
    files = killed(files)
    files.remove_tree(f"{ROOT}/consumequeue")
    store = open_store(files)
    assert bodies_of(store) == bodies
    assert store.max_queue_offset("Topic", 0) == 40


def test_truncated_consume_queue_file(files: MemoryFiles) -> None:
    bodies = filled(25, files)
    files = files.kill()
    files.open(f"{QUEUE}/{200:020d}").truncate(37)
    assert bodies_of(open_store(files)) == bodies


def test_missing_consume_queue_file_in_the_middle(files: MemoryFiles) -> None:
    bodies = filled(35, files)
    files = files.kill()
    files.remove(f"{QUEUE}/{200:020d}")
    assert bodies_of(open_store(files)) == bodies


def test_missing_queue_directory_after_a_clean_stop(files: MemoryFiles) -> None:
    store = open_store(files)
    put(store, *[make_message(b"a", queue_id=n) for n in range(3)])
    store.close()
    files = files.kill()
    files.remove_tree(f"{ROOT}/consumequeue/Topic/1")
    store = open_store(files)
    assert [message.body for message in read_all(store, queue_id=1)] == [b"a"]


def test_units_behind_the_end_of_the_log_are_dropped(files: MemoryFiles) -> None:
    bodies = filled(5, files)
    unit = files.read(f"{QUEUE}/{0:020d}")[80:100]
    overwrite(files, f"{QUEUE}/{0:020d}", 100, (3000).to_bytes(8, "big") + unit[8:])
    store = open_store(killed(files))
    assert bodies_of(store) == bodies
    assert store.append(make_message()).queue_offset == 5


@pytest.mark.parametrize("damage", ["missing", "cut", "garbage"])
def test_index_file(files: MemoryFiles, damage: str) -> None:
    filled(10, files)
    files = files.kill()
    (name,) = files.list(f"{ROOT}/index")
    if damage == "missing":
        files.remove(f"{ROOT}/index/{name}")
    elif damage == "cut":
        files.open(f"{ROOT}/index/{name}").truncate(100)
    else:
        files = killed(files)
        overwrite(files, f"{ROOT}/index/{name}", 60, bytes(range(200)))
    store = open_store(files)
    for number in range(10):
        hits = by_key(store, "Topic", f"k{number}", 10, 0, 1 << 62)
        assert len(hits) == 1, number


@pytest.mark.parametrize("content", [b"", b"\xff" * 4096, bytes(4096), b"short"])
def test_damaged_checkpoint(files: MemoryFiles, content: bytes) -> None:
    bodies = filled(30, files)
    files.open(f"{ROOT}/abort", create=True)
    file = files.open(f"{ROOT}/checkpoint")
    file.truncate(0)
    file.pwrite(content, 0)
    store = open_store(files.kill())
    assert bodies_of(store) == bodies
    assert len(by_key(store, "Topic", "k3", 10, 0, 1 << 62)) == 1


def test_kill_between_file_creation_and_first_write(files: MemoryFiles) -> None:
    bodies = filled(10, files)
    files = killed(files)
    files.open(f"{LOG}/{4096:020d}", create=True)
    assert bodies_of(open_store(files)) == bodies
    files = killed(files)
    files.open(f"{LOG}/{4096:020d}", create=True).truncate(4096)
    assert bodies_of(open_store(files)) == bodies


def test_another_file_size_than_the_configured_is_refused_and_named(files: MemoryFiles) -> None:
    filled(10, files)
    with pytest.raises(DamagedStoreError, match="mappedFileSizeCommitLog"):
        open_store(files.kill(), mapped_file_size_commit_log=8192)
    with pytest.raises(DamagedStoreError, match="mappedFileSizeConsumeQueue"):
        open_store(files.kill(), mapped_file_size_consume_queue=100)


def test_a_missing_log_file_in_the_middle_is_refused(files: MemoryFiles) -> None:
    filled(60, files)
    files = files.kill()
    files.remove(f"{LOG}/{4096:020d}")
    with pytest.raises(DamagedStoreError, match="does not follow"):
        open_store(files)


def test_an_unreadable_log_is_left_alone(files: MemoryFiles) -> None:
    bodies = filled(10, files)
    before = files.read(f"{LOG}/{0:020d}")
    faulty = FaultyFiles(killed(files))
    faulty.faults.append(Fault("pread", "commitlog", errno.EIO))
    with pytest.raises(DamagedStoreError, match="left as it is"):
        open_store(faulty)
    faulty.faults.clear()
    assert faulty.read(f"{LOG}/{0:020d}") == before
    assert bodies_of(open_store(faulty)) == bodies


def test_a_file_in_the_way_of_a_queue_is_not_told_as_one_of_the_log(tmp_path: Path) -> None:
    config = small_config(store_path_root_dir=str(tmp_path))
    store = MessageStore(config, PosixFiles(), ManualClock())
    store.load()
    put(store, make_message())
    store.close()
    (tmp_path / "checkpoint").unlink()
    shutil.rmtree(tmp_path / "consumequeue/Topic")
    (tmp_path / "consumequeue/Topic").touch()
    with pytest.raises(DamagedStoreError, match=r"consumequeue/Topic.*check that file") as raised:
        MessageStore(config, PosixFiles(), ManualClock()).load()
    assert not str(raised.value).startswith("the commit log")


def test_what_could_not_be_synced_is_written_again(files: MemoryFiles) -> None:
    disk = FaultyFiles(files)
    store = open_store(disk)
    put(store, *[make_message(b"%d" % n) for n in range(3)])
    store.checkpoint()
    # More than a file.
    for n in range(3, 9):
        store.append(make_message(b"%d" % n + bytes(1000)))
    store.write_pending()
    disk.faults.append(Fault("fsync", "commitlog", times=1))
    with pytest.raises(NotWritableError):
        store.fsync()
    disk = FaultyFiles(files.kill())
    store = open_store(disk)
    readable = bodies_of(store)
    assert len(readable) == 9
    put(store, make_message(b"acknowledged"))
    assert store.flushed_offset == store.end_offset
    assert isinstance(disk.inner, MemoryFiles)
    after = open_store(disk.inner.crash())
    assert bodies_of(after) == [*readable, b"acknowledged"]
    assert after.report is not None and after.report.notes == []


@pytest.mark.parametrize("is_clean", [True, False])
def test_nothing_in_front_of_what_was_safe_is_written_again(
    files: MemoryFiles, is_clean: bool
) -> None:
    written: list[int] = []

    class Noted(FaultyFiles):
        def check(self, operation: str, path: str) -> Fault | None:
            if operation == "pwrite" and "commitlog" in path:
                written.append(int(path[-20:]))
            return super().check(operation, path)

    store = open_store(files)
    put(store, *[make_message(bytes(1000)) for _ in range(10)])
    store.checkpoint()
    put(store, make_message(bytes(10)))
    if is_clean:
        store.close()
    open_store(Noted(files.kill()))
    assert written == ([] if is_clean else [store.end_offset // 4096 * 4096])


def test_an_index_that_could_not_be_synced_is_written_again(files: MemoryFiles) -> None:
    disk = FaultyFiles(files)
    store = open_store(disk)
    put(store, *[make_message(keys=f"k{n}") for n in range(10)])
    store.checkpoint()
    put(store, *[make_message(keys=f"k{n}") for n in range(10, 20)])
    disk.faults.append(Fault("fsync", "/index/", times=1))
    with pytest.raises(StoreError):
        store.checkpoint()
    files = files.kill()
    store = open_store(files)
    put(store, *[make_message(keys=f"k{n}") for n in range(20, 30)])
    store.checkpoint()
    after = open_store(files.crash())
    assert [len(by_key(after, "Topic", f"k{n}", 9, 0, 1 << 62)) for n in range(30)] == [1] * 30


def test_a_checkpoint_that_says_the_middle_of_a_record_loses_nothing(files: MemoryFiles) -> None:
    store = open_store(files)
    bodies = [b"%d " % n + b"x" * 100 for n in range(30)]
    put(store, *map(make_message, bodies))
    store.checkpoint()
    checkpoint = read_checkpoint(files, store.paths.checkpoint)
    checkpoint.safe_offset -= 2345
    checkpoint.units -= 20
    write_checkpoint(files, store.paths.checkpoint, checkpoint)
    assert bodies_of(open_store(files.kill())) == bodies


#: How a store stopped: in order, killed behind a checkpoint, before its first one, behind a cut
#: that took it back or behind one without messages, and as stock's.
STOPS = ("clean", "killed", "young", "cut", "second", "of stock")


def stopped(kind: str, files: MemoryFiles) -> tuple[MemoryFiles, list[bytes]]:
    """A store that stopped in one of `STOPS`, and the bodies of its messages."""
    if kind == "second":
        open_store(files).close()
        store = open_store(files)
        bodies = [b"%d " % n + bytes(200) for n in range(40)]
        put(store, *map(make_message, bodies))
        for _ in store.write_queues():
            pass
        return files.kill(), bodies
    bodies = filled(40, files)
    if kind == "cut":
        store = open_store(files)
        cut(store, store.queue_units("Topic", 0, 30, 1)[0].position)
        return files.kill(), bodies[:30]
    if kind in ("killed", "young"):
        files.open(f"{ROOT}/abort", create=True)
    if kind == "young":
        files.remove(f"{ROOT}/checkpoint")
    if kind == "of stock":
        # It leaves our fields with a CRC that does not hold.
        overwrite(files, f"{ROOT}/checkpoint", 24, bytes(15) + b"\x01")
    return files, bodies


def content_of(files: MemoryFiles) -> dict[str, bytes]:
    """All files but those that say whose the store is."""
    paths, found = [ROOT], {}
    while paths:
        path = paths.pop()
        try:
            found[path] = files.read(path)
        except OSError:
            paths += [f"{path}/{name}" for name in files.list(path)]
    return {path: data for path, data in found.items() if not path.endswith(("/lock", "/abort"))}


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("is_mounted", [False, True])
def test_a_log_that_is_gone_is_refused_until_it_is_there_again(
    stop: str, is_mounted: bool, files: MemoryFiles
) -> None:
    """As where the disk of `storePathCommitLog` is not mounted."""
    files, bodies = stopped(stop, files)
    names = files.list(LOG)
    images = {name: files.read(f"{LOG}/{name}") for name in names}
    files.remove_tree(LOG)
    if is_mounted:
        files.make_dirs(LOG)
    before = content_of(files)
    for _ in range(2):
        with pytest.raises(DamagedStoreError, match=f"no commit log in {LOG}, and "):
            open_store(files)
        assert content_of(files) == before
        files = files.kill()
    for name, image in images.items():
        overwrite_new(files, f"{LOG}/{name}", image)
    assert bodies_of(open_store(files)) == bodies


@pytest.mark.parametrize("stop", STOPS)
def test_a_store_without_a_log_begins_anew_where_nothing_leads_to_one(
    stop: str, files: MemoryFiles
) -> None:
    files, _ = stopped(stop, files)
    for name in files.list(ROOT):
        if name != "config":
            path = f"{ROOT}/{name}"
            (files.remove if name in ("abort", "checkpoint", "lock") else files.remove_tree)(path)
    store = open_store(files.kill())
    assert queues_of(store) == {}
    assert store.append(make_message()).queue_offset == 0


def test_a_log_of_stocks_that_is_gone_with_its_queues_is_refused_too(files: MemoryFiles) -> None:
    files, _ = stopped("of stock", files)
    for directory in (LOG, f"{ROOT}/consumequeue"):
        files.remove_tree(directory)
    with pytest.raises(DamagedStoreError, match=f"no commit log in {LOG}, and {ROOT}/checkpoint"):
        open_store(files)


@pytest.mark.parametrize("stop", ["clean", "killed", "of stock"])
def test_an_older_copy_of_the_last_file_is_refused_until_the_file_is_restored(
    stop: str, files: MemoryFiles
) -> None:
    bodies = filled(40, files)
    last = f"{LOG}/{files.list(LOG)[-1]}"
    older = files.read(last)
    store = open_store(files)
    bodies += [b"later %d" % n for n in range(3)]
    put(store, *map(make_message, bodies[40:]))
    store.close()
    assert files.list(LOG)[-1] in last
    if stop == "killed":
        files.open(f"{ROOT}/abort", create=True)
    if stop == "of stock":
        overwrite(files, f"{ROOT}/checkpoint", 24, bytes(15) + b"\x01")
    image = files.read(last)
    overwrite(files, last, 0, older)
    before = content_of(files)
    why = "is damaged at offset" if stop == "killed" else "has no message at .* older copy"
    for _ in range(2):
        with pytest.raises(DamagedStoreError, match=why):
            open_store(files)
        assert stop == "killed" or content_of(files) == before
        files = files.kill()
    overwrite(files, last, 0, image)
    assert bodies_of(open_store(files)) == bodies


@pytest.mark.parametrize("stop", ["clean", "killed", "of stock"])
def test_a_log_that_lost_its_last_files_is_refused_until_they_are_there_again(
    stop: str, files: MemoryFiles
) -> None:
    files, bodies = stopped(stop, files)
    last = files.list(LOG)[-1]
    image = files.read(f"{LOG}/{last}")
    files.remove(f"{LOG}/{last}")
    before = content_of(files)
    for _ in range(2):
        with pytest.raises(DamagedStoreError, match=f"ends at {int(last)}, and .* up to"):
            open_store(files)
        assert content_of(files) == before
        files = files.kill()
    overwrite_new(files, f"{LOG}/{last}", image)
    assert bodies_of(open_store(files)) == bodies


def test_what_no_checkpoint_calls_safe_may_be_gone_behind_a_crash(files: MemoryFiles) -> None:
    files, _ = stopped("young", files)
    last = files.list(LOG)[-1]
    files.remove(f"{LOG}/{last}")
    store = open_store(files.kill())
    assert store.end_offset <= int(last)
    assert 0 < len(bodies_of(store)) < 40


@pytest.mark.parametrize("failing", ["", "truncate", "remove"])
@pytest.mark.parametrize("is_closed", [False, True])
def test_an_empty_log_that_was_to_begin_elsewhere_is_no_lost_one(
    is_closed: bool, failing: str, files: MemoryFiles
) -> None:
    """That of a slave whose master has removed what would come next."""
    master = open_store(MemoryFiles())
    put(master, *[make_message(bytes(300)) for _ in range(60)])
    there = master._log.file_starts[4]
    disk = FaultyFiles(files)
    store = open_store(disk)
    # What its queue has leads in front of where the log begins.
    put(store, *[make_message(topic="Old") for _ in range(3)])
    put(store, *[make_message(bytes(300)) for _ in range(20)])
    store.checkpoint()
    change(store.config, {"deleteWhen": ";".join(map(str, range(24)))})
    sum(store.clean(store._clock() + 80 * 3_600_000))
    cut(store, store.min_physical_offset)
    store.checkpoint()
    assert 0 < store.end_offset < there
    if failing:
        disk.faults.append(Fault(failing, "commitlog", errno.ENOSPC))
    try:
        store.append_raw(there, master.read_log(there, 2000))
        store.write_pending()
    except NotWritableError:
        assert failing
    else:
        assert not failing
    disk.faults.clear()
    if is_closed:
        store.close()
    store = open_store(files.kill())
    if failing != "":
        store.append_raw(there, master.read_log(there, 2000))
        store.write_pending()
    assert store.min_physical_offset == there


def test_a_queue_keeps_its_offset_when_the_log_lost_all_its_messages(files: MemoryFiles) -> None:
    store = open_store(files)
    put(store, *[make_message(bytes(300), topic="Old") for _ in range(12)])
    put(store, *[make_message(bytes(300), topic="New") for _ in range(40)])
    store.checkpoint()
    sum(store.clean(store._clock() + 80 * 3_600_000))
    change(store.config, {"deleteWhen": ";".join(map(str, range(24)))})
    assert sum(store.clean(store._clock() + 80 * 3_600_000)) > 0
    assert store.min_queue_offset("Old", 0) == store.max_queue_offset("Old", 0) == 12
    store.close()
    store = open_store(files.kill())
    assert store.max_queue_offset("Old", 0) == 12
    assert store.append(make_message(topic="Old")).queue_offset == 12


@pytest.mark.parametrize("seed", range(8))
def test_names_of_queue_files_are_durable_with_a_checkpoint_also_after_a_kill(seed: int) -> None:
    """The process that made the file was killed before it synced the directory."""
    files = MemoryFiles()
    store = open_store(files)
    put(store, make_message(b"other", queue_id=1))
    store.checkpoint()
    put(store, *[make_message(b"%d" % n) for n in range(5)])
    files = files.kill()
    store = open_store(files)
    put(store, *[make_message(b"%d" % n) for n in range(5, 10)])
    store.checkpoint()
    put(store, *[make_message(b"%d" % n) for n in range(10, 15)])
    assert bodies_of(open_store(files.crash(seed))) == [b"%d" % n for n in range(15)]


def test_configuration_that_cannot_be_is_refused() -> None:
    with pytest.raises(StoreError, match="mappedFileSizeConsumeQueue"):
        MessageStore(small_config(mapped_file_size_consume_queue=30), MemoryFiles(), lambda: 0)
    with pytest.raises(StoreError, match="messageDelayLevel"):
        MessageStore(small_config(message_delay_level="1s 5x"), MemoryFiles(), lambda: 0)


def test_a_queue_that_lost_its_first_file_begins_again_at_its_first_message(
    files: MemoryFiles,
) -> None:
    """Only the second file's name survived, and the log ends in front of its messages."""
    bodies = filled(4, files)
    files = killed(files)
    files.remove(f"{QUEUE}/{0:020d}")
    files.open(f"{QUEUE}/{200:020d}", create=True).truncate(200)
    store = open_store(files)
    assert bodies_of(store) == bodies
    assert store.append(make_message()).queue_offset == 4


@pytest.mark.parametrize("left", [0, 2])
def test_a_queue_whose_first_file_a_power_loss_took_begins_at_0_again(
    files: MemoryFiles, left: int
) -> None:
    """The log begins at 0, so nothing of the queue was removed by age."""
    store = open_store(files)
    put(store, *[make_message(b"%d" % n, topic="Other") for n in range(left)])
    end = store.end_offset
    put(store, *[make_message(b"%d" % n) for n in range(75)])
    store.close()
    files = killed(files)
    first, *later = files.list(QUEUE)
    assert later
    files.remove(f"{QUEUE}/{first}")
    for name in files.list(LOG):
        size = files.open(f"{LOG}/{name}").size()
        start = min(max(end - int(name), 0), size)
        overwrite(files, f"{LOG}/{name}", start, bytes(size - start))
    store = open_store(files)
    assert (store.end_offset, store.max_queue_offset("Topic", 0)) == (end, 0)
    assert store.append(make_message(b"new")).queue_offset == 0
