"""What a check advises helps: a start mends what is to be mended by one, and timers are made again
where their files are moved away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from rocketmq_tw.files.interface import NoFileError
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.formats.timer import SLOT
from rocketmq_tw.store.timer.unit import OFFSET_AT, TIMER_UNIT_SIZE
from rocketmq_tw.storecheck.check import check_store
from rocketmq_tw.storecheck.findings import Finding, Remedy
from rocketmq_tw.storecheck.layout import Sizes, Store
from tests.support.broker import BrokerInMemory, ok
from tests.support.damaged_stores import FIRST, change

SIZES = Sizes(log=1 << 16, queue=200, index_slots=16, index_entries=40, timer_log=4096)


def start(root: Path) -> BrokerInMemory:
    broker = BrokerInMemory(
        PosixFiles(),
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=1 << 16,
        timer_wheel_enable=True,
        mapped_file_size_timer_log=4096,
    )
    work(broker)
    return broker


def work(broker: BrokerInMemory) -> None:
    for _ in range(60):
        broker.clock.advance(0.05)


def found_in(root: Path) -> list[Finding]:
    found: list[Finding] = []
    check_store(Store(str(root), SIZES), found.append)
    return found


def _stores(directory: Path, delays: Iterable[int]) -> dict[str, Path]:
    """A store of a broker that was stopped, and of one that was killed, with timed messages."""
    stopped = directory / "stopped"
    stopped.mkdir()
    broker = start(stopped)
    for number in range(30):
        ok(broker.send(b"body %d" % number))
    for number, delay in enumerate(delays):
        ok(broker.send(b"later %d" % number, properties={"TIMER_DELAY_SEC": str(delay)}))
    broker.offsets.commit("G", "Topic", 0, 3)
    work(broker)
    killed = Path(shutil.copytree(stopped, stopped.parent / "killed"))
    broker.stop()
    assert found_in(stopped) == []
    return {"stopped": stopped, "killed": killed}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return _stores(tmp_path_factory.mktemp("stores"), range(1000, 1100))


@pytest.fixture(scope="module")
def stores_of_a_slot(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All timed messages are for one second."""
    return _stores(tmp_path_factory.mktemp("stores"), [1000] * 30)


def _last(directory: Path) -> Path:
    return max(directory.iterdir())


def _tear_log(root: Path) -> None:
    change(_last(root / "commitlog"), -3000, b"\0\0\0\x65\xda\xa3\x20\xa7 half of a record")


def _tear_timer_log(root: Path) -> None:
    file = _last(root / "timerlog")
    end = -(-len(file.read_bytes().rstrip(b"\0")) // TIMER_UNIT_SIZE) * TIMER_UNIT_SIZE
    change(file, end, b"no entry")


def _slot(at: int) -> Callable[[Path], None]:
    """Spoils a position in the first slot of the wheel."""

    def spoil(root: Path) -> None:
        data = (root / "timerwheel").read_bytes()
        size = SLOT.sizeof()
        first = next(at for at in range(0, len(data), size) if any(data[at : at + size]))
        change(root / "timerwheel", first + at, b"\0\0\x7f")

    return spoil


def _damage_offsets(root: Path) -> None:
    file = root / "config/consumerOffset.json"
    file.rename(f"{file}.bak")
    file.write_text('{"offsetTable"')


def _entry(at: int, data: bytes) -> Callable[[Path], None]:
    return lambda root: change(root / "timerlog" / FIRST, 3 * TIMER_UNIT_SIZE + at, data)


TIMER_ENTRIES: dict[str, Callable[[Path], object]] = {
    "a magic of the timer log": _entry(12, b"\x7f"),
    "a size of the timer log": _entry(0, b"\x7f"),
    "zeros in the timer log": _entry(0, bytes(TIMER_UNIT_SIZE)),
    "a chain of the timer log": _entry(4, b"\x7f"),
}
STARTS: dict[str, Callable[[Path], object]] = {
    "nothing else": lambda root: None,
    "a short checkpoint": lambda root: (root / "checkpoint").write_bytes(b"short"),
    "no checkpoint": lambda root: (root / "checkpoint").unlink(missing_ok=True),
    "an empty file of the log": lambda root: (root / "commitlog" / f"{1 << 16:020}").write_bytes(
        b""
    ),
    "an empty file of a queue": lambda root: (
        root
        / "consumequeue/Topic/0"
        / f"{int(_last(root / 'consumequeue/Topic/0').name) + 200:020}"
    ).touch(),
    "an empty file of the timer log": lambda root: (root / "timerlog" / f"{8192:020}").touch(),
    "a table with a copy": _damage_offsets,
    "a torn timer log": _tear_timer_log,
    **TIMER_ENTRIES,
    "no wheel": lambda root: (root / "timerwheel").unlink(),
    "an empty wheel": lambda root: (root / "timerwheel").write_bytes(b""),
    "a slot of the wheel": _slot(16),
    "the first entry of a slot": _slot(8),
    "short progress": lambda root: (root / "config/timercheck").write_bytes(b"short"),
    "progress that is ahead": lambda root: change(root / "config/timercheck", 12, b"\x7f"),
}


@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize("name", STARTS)
def test_what_a_start_is_to_mend_is_mended_by_one(
    name: str, end: str, stores: dict[str, Path], tmp_path: Path
) -> None:
    root = Path(shutil.copytree(stores[end], tmp_path / "store"))
    STARTS[name](root)
    found = found_in(root)
    assert {finding.remedy for finding in found} == (
        set() if (name, end) == ("nothing else", "stopped") else {Remedy.START}
    )
    start(root).stop()
    assert found_in(root) == []


def test_a_torn_log_is_mended_by_a_start_only_where_the_broker_was_killed(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    for end, remedy in (("stopped", Remedy.REPAIR), ("killed", Remedy.START)):
        root = Path(shutil.copytree(stores[end], tmp_path / end))
        _tear_log(root)
        assert {each.remedy for each in found_in(root) if each.kind == "log-torn"} == {remedy}
        start(root).stop()
        assert [each.kind for each in found_in(root)] == ["log-torn"] * (end == "stopped")


@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize("name", [*TIMER_ENTRIES, "the first entry of a slot"])
def test_a_slot_that_lacks_entries_is_made_again_by_a_start(
    name: str, end: str, stores_of_a_slot: dict[str, Path], tmp_path: Path
) -> None:
    root = Path(shutil.copytree(stores_of_a_slot[end], tmp_path / "store"))
    STARTS[name](root)
    found = found_in(root)
    assert {finding.remedy for finding in found} == {Remedy.START}
    assert name == "the first entry of a slot" or f"timerlog/{FIRST}" in {
        finding.file for finding in found
    }
    start(root).stop()
    assert found_in(root) == []
    broker = start(root)
    broker.clock.advance(1000)
    work(broker)
    later = [message.body for message in broker.consume()[30:]]
    assert later == [b"later %d" % number for number in range(30)]


def test_timers_are_made_again_where_their_files_are_moved_away(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    root = Path(shutil.copytree(stores["stopped"], tmp_path / "store"))
    _entry(OFFSET_AT, b"\0\0\0\0\0\0\0\5")(root)
    (finding,) = found_in(root)
    assert finding.remedy is Remedy.RESTORE
    assert "move timerlog and timerwheel away, and the start makes them again" in finding.text
    start(root).stop()
    assert found_in(root) == [finding]
    shutil.rmtree(root / "timerlog")
    (root / "timerwheel").unlink()
    start(root).stop()
    summary, findings = check_store(Store(str(root), SIZES), lambda finding: None)
    assert (summary.timer_entries, findings.count) == (100, 0)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
@pytest.mark.parametrize("name", ["timermetrics", "transactionMetrics", "delayOffset.json"])
def test_a_start_refuses_at_once_what_the_check_says_is_no_file(
    name: str, make: Callable[[Path], None], stores: dict[str, Path], tmp_path: Path
) -> None:
    root = Path(shutil.copytree(stores["stopped"], tmp_path / "store"))
    path = root / "config" / name
    path.unlink(missing_ok=True)
    make(path)
    (finding,) = found_in(root)
    assert (finding.kind, finding.file) == ("file-kind", f"config/{name}")
    with pytest.raises(NoFileError):
        start(root)
