"""Making a damaged store one that a broker starts with: what is wrong is taken away, and the
broker's own recovery builds it again from the log."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import attrs

from rocketmq_tw.admin.store.places import is_inside
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.owners import give
from rocketmq_tw.files.posix import SEEK_DATA, SEEK_HOLE, PosixFiles
from rocketmq_tw.formats.flat import flat
from rocketmq_tw.formats.queue import UNIT
from rocketmq_tw.formats.record import PLACE, PLACE_AT
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.store.queue_units import FILLER
from rocketmq_tw.storecheck.check import Summary
from rocketmq_tw.storecheck.findings import Findings
from rocketmq_tw.storecheck.index import index_files
from rocketmq_tw.storecheck.layout import Store
from rocketmq_tw.storecheck.long_file import LongFile
from rocketmq_tw.storecheck.queue_tree import queues_below, usual_size_below
from rocketmq_tw.storecheck.queues import Mend
from rocketmq_tw.structs import msgspec

_UNIT = flat(UNIT)
_BLOCK = 1 << 20
#: Records that are named one by one.
_MOST_NOTES = 20
#: It says whose a store is, and is not copied.
_LOCK = "lock"
#: What is copied stands in this directory of the copy until it is whole.
UNFINISHED = "unfinished-copy"


def copy_store(source: str, target: str, advance: Callable[[int], object]) -> None:
    """Copies a store's files, without what nobody wrote; durable when it returns. Raises `OSError`,
    and leaves nothing in `target` then; killed, it leaves no store there that is whole in part."""
    files = PosixFiles()
    directories = list(_walk(source))
    unfinished = os.path.join(target, UNFINISHED)
    try:
        files.make_dirs(target)
        give(target, os.stat(source), rights=False)
        for directory, names in directories:
            into = os.path.normpath(os.path.join(unfinished, os.path.relpath(directory, source)))
            files.make_dirs(into)
            give(into, os.stat(directory), rights=False)
            for name in names:
                path = os.path.join(into, name)
                with _named(path):
                    _copy_file(os.path.join(directory, name), path, advance)
            files.sync_dir(into)
        # The log comes last: a broker does not start without it.
        for name in sorted(os.listdir(unfinished), key=lambda name: name == "commitlog"):
            os.rename(os.path.join(unfinished, name), os.path.join(target, name))
        os.rmdir(unfinished)
        files.sync_dir(target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def room_of(source: str) -> int:
    """Returns how many bytes of a disk a copy of a store takes, where holes stay holes."""
    return sum(
        512 * os.stat(os.path.join(directory, name)).st_blocks
        for directory, names in _walk(source)
        for name in names
    )


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Lets an error of an open file say which one it is."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise


def _walk(source: str) -> Iterator[tuple[str, list[str]]]:
    """Yields each directory of a store with the names of its files, without the lock. Raises
    `OSError` where something is no file and no directory: reading it might never end."""
    # A directory that is a link belongs to the store too.
    for directory, below, names in os.walk(source, followlinks=True):
        for name in below:
            path = f"{directory}/{name}"
            if os.path.islink(path) and is_inside(directory, path):
                raise OSError(f"{path} is a link to a directory that it is in: move it away")
        own = [name for name in names if directory != source or name != _LOCK]
        for name in own:
            if not os.path.isfile(f"{directory}/{name}"):
                raise OSError(f"{directory}/{name} is no file and no directory: move it away")
        yield directory, own


def _copy_file(source: str, target: str, advance: Callable[[int], object]) -> None:
    with open(source, "rb", buffering=0) as reader, open(target, "wb", buffering=0) as writer:
        found = os.fstat(reader.fileno())
        size = found.st_size
        give(target, found, rights=False)
        # It is no more open to others than before, and the repair can write it.
        os.fchmod(writer.fileno(), stat.S_IMODE(found.st_mode) | stat.S_IWUSR)
        writer.truncate(size)
        position = 0
        while position < size:
            try:
                position = os.lseek(reader.fileno(), position, SEEK_DATA)
            except OSError:
                # Nothing but a hole up to the end.
                break
            hole = os.lseek(reader.fileno(), position, SEEK_HOLE)
            data = os.pread(reader.fileno(), min(_BLOCK, hole - position), position)
            if not data:
                break
            os.pwrite(writer.fileno(), data, position)
            position += len(data)
            advance(len(data))
        # By it a file of the log expires.
        os.utime(writer.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))
        os.fsync(writer.fileno())


def differing_size(store: Store, config: MessageStoreConfig) -> str:
    """Returns what a configuration says of the log's files and they do not show; empty where it is
    right."""
    said, found = config.mapped_file_size_commit_log, store.log.usual_size
    if found and found != said:
        return f"mappedFileSizeCommitLog = {said}, and the files have {found} bytes"
    return ""


def differing_queues(store: Store, config: MessageStoreConfig, findings: Findings) -> str:
    """Returns what a configuration says of the queues' files and they do not show. Files that were
    cut off are shorter too: then messages have no unit."""
    said = config.mapped_file_size_consume_queue
    found = usual_size_below(store.root, "consumequeue")
    is_cut_off = found < said and (found % UNIT.sizeof() or findings.kinds["unit-missing"])
    fits = not any(
        start % said
        for topic, queue_id in queues_below(store.root, "consumequeue")
        for start in LongFile(store.root, f"consumequeue/{topic}/{queue_id}").starts
    )
    if not found or found == said or (is_cut_off and fits):
        return ""
    return (
        f"mappedFileSizeConsumeQueue = {said}, and the files of queues have {found} bytes: give the"
        " configuration of this store; if it is that, move consumequeue away, and a repair builds"
        " it again"
    )


def config_for(
    store: Store, summary: Summary, given: MessageStoreConfig | None
) -> MessageStoreConfig:
    """Returns the configuration by which a broker would open the store: the one that was given, or
    what the files show."""
    root, sizes = store.root, store.sizes
    if given is not None:
        return msgspec.structs.replace(
            given,
            store_path_root_dir=root,
            store_path_commit_log="" if store.is_log_inside else store.log_path,
            # What has further queues keeps them, also where no new ones are to be.
            enable_multi_dispatch=given.enable_multi_dispatch or summary.has_further,
            enable_lmq=given.enable_lmq or summary.has_further,
        )
    defaults = MessageStoreConfig()
    has_extensions = os.path.isdir(f"{root}/consumequeue_ext")
    return msgspec.structs.replace(
        defaults,
        store_path_root_dir=root,
        store_path_commit_log="" if store.is_log_inside else store.log_path,
        mapped_file_size_commit_log=store.log.file_size or defaults.mapped_file_size_commit_log,
        mapped_file_size_consume_queue=usual_size_below(root, "consumequeue")
        or defaults.mapped_file_size_consume_queue,
        mapped_file_size_consume_queue_ext=usual_size_below(root, "consumequeue_ext")
        or defaults.mapped_file_size_consume_queue_ext,
        max_hash_slot_num=sizes.index_slots,
        max_index_num=sizes.index_entries,
        enable_consume_queue_ext=has_extensions,
        enable_multi_dispatch=summary.has_further,
        enable_lmq=summary.has_further,
    )


@attrs.frozen
class Rebuilding:
    """What a repair takes away, so that the recovery builds it again: the queues, or not. The index
    goes always, as a recovery puts the last message into one that it keeps a second time."""

    queues: bool


def rebuilding_of(store: Store, findings: Findings, loss: Loss | None) -> Rebuilding | None:
    """Returns what is to be built again; None where a repair mends nothing of what was found."""
    found = findings.mendable
    is_cut = loss is not None or bool(findings.kinds["checkpoint-ahead"])
    queues = is_cut or bool(found["consumequeue"] or found["consumequeue_ext"])
    is_any = queues or bool(found[store.log.directory] or found["index"] or found["checkpoint"])
    return Rebuilding(queues) if is_any else None


@attrs.frozen
class Loss:
    """What a cut at a log offset takes away: whole records, and files of the log."""

    at: int
    records: int
    first: int
    last: int
    files: list[int]

    @property
    def line(self) -> str:
        """All of it in a line."""
        records = (
            "1 whole record"
            if self.records == 1
            else f"{self.records} whole records from {self.first} to {self.last}"
        )
        files = ", ".join(f"{start:020}" for start in self.files[:_MOST_NOTES])
        more = f" and {len(self.files) - _MOST_NOTES} more" if self.files[_MOST_NOTES:] else ""
        of_files = f", its files {files}{more} go" if files else ""
        return f"the log ends at {self.at}: {records} behind that are lost{of_files}"


def loss_of_cut(log: LongFile, summary: Summary) -> Loss | None:
    """Returns what ending the log at its first damage would lose; None without a damage."""
    at = summary.damaged_at
    if at is None:
        return None
    return Loss(
        at, summary.behind, summary.first_behind, summary.last_behind, _files_behind(log, at)
    )


def stray_files(log: LongFile, loss: Loss | None) -> list[str]:
    """Returns the paths of the log's files that follow no other one, without those that go with
    `loss`: a broker does not start with them."""
    stray, expected = list(log.astray), log.min_offset
    for start in log.starts:
        if start != expected and (loss is None or start < loss.at):
            stray.append(start)
        expected = start + log.file_size
    return [log.path(start) for start in stray]


def _files_behind(log: LongFile, cut_at: int) -> list[int]:
    return [start for start in log.starts if start >= cut_at > log.min_offset]


def rebuild(
    config: MessageStoreConfig,
    log: LongFile,
    rebuilding: Rebuilding,
    *,
    files: IFiles,
    summary: Summary,
    release: Callable[[], object],
    advance: Callable[[int], object] = lambda count: None,
) -> list[str]:
    """Gives the records that `summary` says their places, and builds what is in `rebuilding` again
    from the log, which ends in front of its first damage then; no file of it that starts at or
    behind that is kept. Returns notes of what was changed. Raises `StoreError` and `OSError`.

    Where queues end whose messages are gone from the log stays, and so do files that are not the
    store's. A store with `abort` keeps it: its timer files are as they were. `files` makes what is
    new. The store's lock is the caller's until `release`, after which the recovery takes it.
    `advance` is told of the bytes of the log that the recovery has read.
    """
    cut_at = summary.damaged_at
    was_closed = not os.path.exists(f"{config.store_path_root_dir}/abort")
    written = {start: os.stat(log.path(start)).st_mtime_ns for start in log.starts}
    notes = _take_away(files, config, log, rebuilding, summary)
    notes += _mend_records(log, cut_at, summary.mends)
    release()
    store = MessageStore(config, files, wall_clock_ms)
    report = store.load(advance)
    store.close(mark_closed=was_closed)
    _set_times(log, written)
    return [*notes, *report.notes, "index and checkpoint are built again"]


def _set_times(log: LongFile, written: dict[int, int]) -> None:
    """Sets when files of the log were written last, in nanoseconds by their starts, but for the
    last one: a recovery writes them again, and none would expire for as long as a new one."""
    left = [start for start in written if os.path.exists(log.path(start))]
    for start in left[:-1]:
        with suppress(PermissionError):
            os.utime(log.path(start), ns=(written[start], written[start]))


def _take_away(
    files: IFiles,
    config: MessageStoreConfig,
    log: LongFile,
    rebuilding: Rebuilding,
    summary: Summary,
) -> list[str]:
    """Removes what is to be built again; returns notes of queues that may have lost their end."""
    root = config.store_path_root_dir
    former = read_checkpoint(files, f"{root}/checkpoint")
    # First of all: nothing is known to be safe any more, whatever happens from here on.
    end = summary.log_end if summary.damaged_at is None else summary.damaged_at
    unsafe = Checkpoint(
        master_flushed_offset=max(min(former.master_flushed_offset, end), 0),
        confirm_phy_offset=max(min(former.confirm_phy_offset, end), 0),
    )
    write_checkpoint(files, f"{root}/checkpoint", unsafe)
    abort = files.open(f"{root}/abort", create=True)
    abort.truncate(0)
    abort.pwrite(str(os.getpid()).encode(), 0)
    abort.close()
    notes = _take_units_away(config, log, summary) if rebuilding.queues else []
    for name in index_files(root):
        os.remove(f"{root}/index/{name}")
    cut_at = summary.damaged_at
    for start in [] if cut_at is None else _files_behind(log, cut_at):
        os.remove(log.path(start))
    return most_of(notes, "queues")


def _take_units_away(config: MessageStoreConfig, log: LongFile, summary: Summary) -> list[str]:
    """Removes what queues have of messages in the log; returns notes as `_take_away` does."""
    root, notes = config.store_path_root_dir, []
    for topic, queue_id in list(queues_below(root, "consumequeue")):
        name = f"consumequeue/{topic}/{queue_id}"
        files = LongFile(root, name, config.mapped_file_size_consume_queue)
        first = summary.first_offsets.get((topic, queue_id))
        end = _known_end(files, log.min_offset, first)
        if not end:
            _remove_files(files)
            _remove_files(LongFile(root, f"consumequeue_ext/{topic}/{queue_id}"))
        elif not _end_at(files, end, log.min_offset) and first is None:
            notes.append(
                f"{name}: it is damaged, and the log has none of its messages: it goes on from"
                f" {end}, the last place that is known"
            )
    return notes


def most_of(notes: list[str], what: str) -> list[str]:
    """Returns the first notes, and how many more there are."""
    more = len(notes) - _MOST_NOTES
    return notes if more <= 0 else [*notes[:_MOST_NOTES], f"and {more} more {what}"]


def _mend_records(log: LongFile, cut_at: int | None, mends: Sequence[Mend]) -> list[str]:
    """Writes queue and queue offset into records; returns notes of it."""
    notes = []
    for mend in mends:
        if cut_at is not None and mend.position >= cut_at:
            continue
        start = mend.position - mend.position % log.file_size
        with open(log.path(start), "r+b", buffering=0) as file:
            at = mend.position - start
            data = os.pread(file.fileno(), PLACE.sizeof(), at + PLACE_AT)
            former = PLACE.parse(data)
            place = {**former, "queue_id": mend.queue_id, "queue_offset": mend.queue_offset}
            os.pwrite(file.fileno(), PLACE.build(place), at + PLACE_AT)
            os.fsync(file.fileno())
        notes.append(
            f"record at {mend.position}: it is {mend.queue_offset} of queue {mend.queue_id} again,"
            f" as its unit says, in place of {former.queue_offset} of queue {former.queue_id}"
        )
    return most_of(notes, "records")


def _known_end(files: LongFile, log_start: int, first: int | None) -> int:
    """Returns where a queue ends without what the log has of it, from queue offset `first` on:
    behind its last unit that leads in front of the log, or where its first file begins. 0 where the
    log alone tells.

    Too late an end does no harm; with one too early, offsets would be given again.
    """
    if not log_start:
        return 0
    for start in reversed(files.starts):
        units = files.read(files.file_size, start)
        base, count = start // _UNIT.size, len(units) // _UNIT.size
        if first is not None:
            count = min(count, first - base)
        for number in range(count - 1, -1, -1):
            if _is_old(units, number, log_start):
                return base + number + 1
    begin = files.min_offset // _UNIT.size
    return begin if first is None or begin <= first else 0


def _is_old(units: bytes, number: int, log_start: int) -> bool:
    """Returns whether a unit leads in front of the log, or stands for no message."""
    position, size, _ = _UNIT.unpack_from(units, number * _UNIT.size)
    return 0 <= position < log_start and size > 0


def _end_at(files: LongFile, end: int, log_start: int) -> bool:
    """Leaves of a queue the one file that says where it ends, with no unit at or behind queue
    offset `end`; returns whether all of its files were whole.

    What is no old unit in front of that becomes one without a message: the recovery looks for the
    end as for that of a row without a hole.
    """
    last = max(end * _UNIT.size - 1, files.min_offset)
    start = last - last % files.file_size
    count = end - start // _UNIT.size
    units = files.read(files.file_size, start)
    holes = [number for number in range(count) if not _is_old(units, number, log_start)]
    expected = [*range(files.min_offset, files.files_end, files.file_size)]
    is_whole = not holes and files.sizes == dict.fromkeys(expected, files.file_size)
    with open(files.path(start), "r+b", buffering=0) as file:
        for number in holes:
            os.pwrite(file.fileno(), FILLER, number * _UNIT.size)
        # So that zeros follow.
        file.truncate(count * _UNIT.size)
        file.truncate(files.file_size)
    _remove_files(files, but=start)
    return is_whole


def _remove_files(files: LongFile, but: int = -1) -> None:
    """Removes files, and their directory unless there is something else in it."""
    for start in files.sizes:
        if start != but:
            os.remove(files.path(start))
    with suppress(OSError):
        os.rmdir(os.path.dirname(files.path(0)))
