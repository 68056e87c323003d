"""`rmqadmin store`: on stores in a directory of the test, sound and damaged ones."""

import errno
import io
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, suppress
from pathlib import Path
from zlib import crc32

import pytest

from rocketmq_tw.admin.main import main
from rocketmq_tw.admin.store.looking import Checked, look_through
from rocketmq_tw.admin.store.repairing import copy_store, rebuild
from rocketmq_tw.admin.tool import Tool
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.formats.record import FIXED, MAGIC_V1
from rocketmq_tw.store.errors import DamagedStoreError
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.storecheck.layout import Store
from tests.support.damaged_stores import (
    DAMAGES,
    MESSAGES,
    Damage,
    change,
    log_end,
    make_store,
    open_again,
)
from tests.support.stores import (
    START_MS,
    ManualClock,
    make_message,
    put,
    queues_of,
    read_all,
    small_config,
)
from tests.unit.admin.conftest import STORE_CONFIG, Run


def bodies_of(root: Path) -> list[bytes]:
    """Opens the store as a broker and reads all of it, in the order of the log."""
    store = open_again(root)
    found = [message for queue in range(3) for message in read_all(store, queue_id=queue)]
    store.close()
    return [m.body for m in sorted(found, key=lambda message: message.physical_offset)]


ALL = [b"body %d" % number for number in range(MESSAGES)]


def test_check_of_a_sound_store_has_status_0(root: Path, run: Run) -> None:
    outcome = run("check", root)
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.splitlines()[-1] == "nothing is wrong"
    checked = run("check", root, "--output", "json").json
    assert (checked["records"], checked["findings"], checked["closed"]) == (MESSAGES, [], True)


def test_check_of_a_damaged_store_has_status_1_and_a_line_for_each(root: Path, run: Run) -> None:
    change(root / "commitlog" / f"{4096:020}", 4, b"\0\0\0\0")
    outcome = run("check", root)
    assert outcome.status == 1
    assert f"commitlog/{4096:020} at 0: no whole record from 4096 to " in outcome.out
    assert "restore the file from a replica or a backup" in outcome.out
    outcome = run("check", root, "--output", "json")
    found = json.loads(outcome.out)
    assert outcome.status == 1
    assert found["findingsTotal"] == len(found["findings"])
    assert {"log-damage"} <= {finding["kind"] for finding in found["findings"]}


@pytest.mark.parametrize("words", [("check",), ("check", "/nowhere"), ("repair", "/nowhere")])
def test_a_wrong_call_has_status_2(words: tuple[str, ...], run: Run) -> None:
    assert run(*words).status == 2


@pytest.mark.parametrize(
    "words",
    [
        ("check", ""),
        ("stats", " "),
        ("dump", "log", ""),
        ("repair", ".", "--to", ""),
        ("check", ".", "--log", ""),
        ("check", ".", "-c", ""),
    ],
)
def test_an_empty_path_is_not_the_current_directory(
    words: tuple[str, ...], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where a script's variable is not set."""
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    before = content_of(root)
    with chdir(root), pytest.raises(SystemExit) as ended:
        main(["store", *words, *("-y",) * ("repair" in words)], Tool())
    assert ended.value.code == 2
    assert "it is empty: give a path" in capsys.readouterr().err
    assert content_of(root) == before


def test_a_wrong_configuration_is_said(root: Path, tmp_path: Path, run: Run) -> None:
    wrong = tmp_path / "wrong.conf"
    wrong.write_text("mappedFileSizeCommitLog=many\n")
    outcome = run("check", root, "-c", wrong)
    # The fixture's own -c stands behind it and counts.
    assert outcome.status == 0
    with pytest.raises(SystemExit) as ended:
        main(["store", "check", str(root), "-c", str(wrong)], Tool())
    assert ended.value.code == 2


@pytest.mark.parametrize("command", ["check", "repair"])
def test_a_lock_that_is_no_file_is_not_waited_for(command: str, root: Path, run: Run) -> None:
    (root / "lock").unlink()
    os.mkfifo(root / "lock")
    outcome = run(command, root)
    assert (outcome.status, outcome.out) == (1, "")
    assert f"{root}/lock is no file, and one belongs there: move it away" in outcome.err


@pytest.mark.parametrize("command", ["check", "repair"])
def test_a_store_in_use_is_left_alone(command: str, root: Path, run: Run) -> None:
    lock = PosixFiles().lock(str(root / "lock"))
    try:
        outcome = run(command, root)
        assert outcome.status == 1
        assert "is in use by a broker or another repair: stop it" in outcome.err
    finally:
        lock.close()


def test_a_broker_that_starts_while_a_store_is_checked_is_told(
    root: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = []

    def look_through_with_a_start(store: Store) -> Checked:
        locks.append(PosixFiles().lock(str(root / "lock")))
        return look_through(store)

    monkeypatch.setattr("rocketmq_tw.admin.store.check.look_through", look_through_with_a_start)
    outcome = run("check", root)
    locks.pop().close()
    assert (outcome.status, outcome.out) == (1, "")
    assert "is in use by a broker or another repair: stop it" in outcome.err


def test_the_lock_of_another_process_is_noticed(root: Path, run: Run) -> None:
    # As Java locks: by fcntl alone.
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX, 1);"
        " print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(root / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"locked\n"
        assert "is in use by a broker" in run("repair", root, "--yes").err
        owner.communicate()
    assert run("check", root).status == 0


@pytest.mark.parametrize(
    "damage", [damage for damage in DAMAGES if damage.repairable], ids=lambda damage: damage.name
)
def test_a_repair_makes_a_store_without_findings(damage: Damage, root: Path, run: Run) -> None:
    damage.do(root)
    assert run("check", root).status == 1
    outcome = run("repair", root, "--yes")
    assert outcome.status == 0, outcome
    assert outcome.out.splitlines()[-1] == "nothing is wrong"
    assert bodies_of(root) == ALL
    assert run("check", root).status == 0


@pytest.mark.parametrize(
    "damage",
    [damage for damage in DAMAGES if not damage.repairable],
    ids=lambda damage: damage.name,
)
def test_what_would_lose_records_is_refused_without_cut(
    damage: Damage, root: Path, run: Run
) -> None:
    damage.do(root)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    outcome = run("repair", root, "--yes")
    assert outcome.status == 1
    assert "restore its" in outcome.err
    assert "--cut" in outcome.err
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before

    if damage.name in ("a last log file that is lost", "an end that is lost"):
        with pytest.raises(DamagedStoreError, match=f"after `rmqadmin store repair {root} --cut`"):
            open_again(root)
    run("repair", root, "--yes", "--cut")
    bodies = bodies_of(root)
    # All in front of the damage, which is in the second file or the last one.
    assert bodies == ALL[: len(bodies)]
    assert len(bodies) >= 4096 // 130
    assert len(bodies) < MESSAGES
    assert run("check", root, "--output", "json").json["findings"] == []


@pytest.mark.parametrize("has_file", [True, False])
def test_a_cut_says_what_it_loses(
    has_file: bool, root: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = root / "commitlog"
    records = [json.loads(line) for line in run("dump", "log", root, "--count", 1000, "--output",
                                                "json").out.splitlines()]  # fmt: skip
    positions = [record["physicalOffset"] for record in records]
    if has_file:
        change(log / f"{4096:020}", 4, b"\0\0\0\0")
        lost = [position for position in positions if position > 4096]
    else:
        (log / f"{4096:020}").unlink()
        lost = [position for position in positions if position >= 8192]
    gone = sorted(path.name for path in log.iterdir())[1:]
    line = (
        f"the log ends at 4096: {len(lost)} whole records from {lost[0]} to {lost[-1]} behind that"
        f" are lost, its files {', '.join(gone)} go"
    )
    assert line in run("repair", root, "--yes").err
    assert f"with --cut {line}" in run("repair", root, "--cut", "--dry-run").out
    assert f"With --cut {line}. Repair" in run("repair", root, "--cut").err
    assert sorted(path.name for path in log.iterdir())[1:] == gone
    outcome = run("repair", root, "--cut", "--yes", "--output", "json")
    told = json.loads(outcome.out)
    assert (told["lost"]["records"], told["after"]["logEnd"]) == (len(lost), 4096)
    assert line in told["notes"]
    assert not any((log / name).exists() for name in gone)


def test_a_check_says_where_a_repair_refuses_for_now(root: Path, run: Run) -> None:
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    assert run("check", root).out.endswith("1 x repair: `rmqadmin store repair` mends it\n")
    found = json.loads(run("check", root, "--output", "json").out)
    assert found["repairRefused"] is None
    change(root / "commitlog" / f"{4096:020}", 90, b"?")
    refused = run("repair", root, "--yes").err.removeprefix("rmqadmin: ").strip()
    line = f"1 x repair: `rmqadmin store repair` mends it, and refuses to for now: {refused}"
    assert line in run("check", root).out.splitlines()
    found = json.loads(run("check", root, "--output", "json").out)
    assert found["repairRefused"] == refused


def test_a_check_without_the_configuration_says_that_a_repair_wants_it(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["store", "check", str(root)], Tool())
    assert ended.value.code == 1
    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .endswith(
            "mends it, and refuses to for now: files of the index have another size than stock's:"
            " give the broker's configuration with -c, so that new ones get its size"
        )
    )


def test_a_repair_of_a_copy_leaves_the_store_as_it_is(root: Path, tmp_path: Path, run: Run) -> None:
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    target = tmp_path / "copy"
    outcome = run("repair", root, "--to", target)
    assert outcome.status == 0, outcome
    assert outcome.out.startswith(f"log: {root}/commitlog\nfound 1 thing before the repair\n")
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert bodies_of(target) == ALL
    assert run("repair", root, "--to", target).status == 2


def test_a_repair_in_place_asks_first(root: Path, run: Run) -> None:
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    outcome = run("repair", root)
    assert outcome.status == 2
    assert "--yes" in outcome.err


def test_a_repair_with_another_stores_configuration_is_refused(
    root: Path, tmp_path: Path, run: Run
) -> None:
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    other = tmp_path / "other.conf"
    other.write_text(STORE_CONFIG.replace("200", "400"))
    with pytest.raises(SystemExit) as ended:
        main(["store", "repair", str(root), "--yes", "-c", str(other)], Tool())
    assert ended.value.code == 2
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_log_outside_of_the_store_is_found_and_repaired_in_place(
    root: Path, tmp_path: Path, run: Run
) -> None:
    log = tmp_path / "elsewhere"
    (root / "commitlog").rename(log)
    config = tmp_path / "broker.conf"
    config.write_text(f"{STORE_CONFIG}storePathRootDir={root}\nstorePathCommitLog={log}\n")
    outcome = run("check", root)
    assert (outcome.status, outcome.out.splitlines()[0]) == (0, f"log: {log}")
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    outcome = run("repair", root, "--to", tmp_path / "copy")
    assert (outcome.status, "copy both" in outcome.err) == (2, True)
    assert run("repair", root, "--yes").status == 0
    assert run("check", root).status == 0


def content_of(*directories: Path) -> dict[Path, bytes]:
    """What the files below the directories have."""
    paths = (path for directory in directories for path in directory.rglob("*"))
    return {path: path.read_bytes() for path in paths if path.is_file()}


def move_a_queue(queues: Path) -> None:
    shutil.rmtree(queues / "0")
    (queues / "1").rename(queues / "0")


def swap_queues(queues: Path) -> None:
    (queues / "0").rename(queues / "former")
    (queues / "1").rename(queues / "0")
    (queues / "former").rename(queues / "1")


def move_a_file(queues: Path) -> None:
    (queues / "1" / f"{0:020}").replace(queues / "0" / f"{0:020}")


def bring_those_of_another_store(queues: Path) -> None:
    """Its messages are as long, and chose their queues otherwise."""
    other = queues.parents[2] / "other"
    make_store(other, lambda number: (number + number // 7) % 3)
    shutil.rmtree(queues)
    (other / "consumequeue/Topic").rename(queues)


@pytest.mark.parametrize(
    "misplace", [move_a_queue, swap_queues, move_a_file, bring_those_of_another_store]
)
def test_queue_files_in_a_wrong_place_change_no_record(
    misplace: Callable[[Path], None], root: Path, run: Run
) -> None:
    log = content_of(root / "commitlog")
    misplace(root / "consumequeue/Topic")
    assert run("check", root).status == 1
    outcome = run("repair", root, "--yes")
    assert outcome.status == 0, outcome
    assert content_of(root / "commitlog") == log
    assert bodies_of(root) == ALL


@pytest.mark.parametrize("is_copied", [True, False])
@pytest.mark.parametrize("is_rebuilt", [True, False])
def test_a_store_that_was_killed_is_started_as_such_after_a_repair(
    is_rebuilt: bool, is_copied: bool, root: Path, tmp_path: Path, run: Run
) -> None:
    """Its timer log is as the kill left it, which a start mends only then."""
    (root / "abort").write_text("77")
    if is_rebuilt:
        change(root / f"consumequeue/Topic/0/{400:020}", 40, bytes(20))
    else:
        (root / "config/consumerOffset.json").write_text('{"offsetTable":{"Topic@group":{0:99}}}')
    copy = tmp_path / "copy"
    outcome = run("repair", root, "--to", copy) if is_copied else run("repair", root, "--yes")
    assert outcome.status == 0, outcome
    repaired = copy if is_copied else root
    assert (repaired / "abort").exists()
    store = open_again(repaired)
    assert not store.report.clean
    store.close()
    assert not (repaired / "abort").exists()
    assert bodies_of(repaired) == ALL


@pytest.mark.parametrize("is_copied", [True, False])
def test_a_repair_changes_not_when_files_of_the_log_expire(
    is_copied: bool, root: Path, tmp_path: Path, run: Run
) -> None:
    for path in (root / "commitlog").iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    change(root / f"consumequeue/Topic/0/{400:020}", 40, bytes(20))
    copy = tmp_path / "copy"
    outcome = run("repair", root, "--to", copy) if is_copied else run("repair", root, "--yes")
    assert outcome.status == 0, outcome
    *sealed, last = sorted(((copy if is_copied else root) / "commitlog").iterdir())
    assert {path.stat().st_mtime for path in sealed} == {1_700_000_000}
    assert last.stat().st_mtime > 1_700_000_000


def test_a_copy_is_durable_where_only_a_table_is_mended(
    root: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    (root / "config/consumerOffset.json").write_text('{"offsetTable":{"Topic@group":{0:99}}}')
    copy = tmp_path / "new/copy"
    assert run("repair", root, "--to", copy).status == 0
    made = {str(copy / path.relative_to(root)) for path in root.rglob("*") if path.name != "lock"}
    assert {str(copy), str(copy.parent), str(tmp_path)} <= synced
    # Where they were before all of them were moved.
    assert made <= {path.replace("/unfinished-copy", "") for path in synced}


@pytest.mark.parametrize("has_root", [True, False])
def test_a_copy_is_repaired_with_the_originals_configuration(
    has_root: bool, root: Path, tmp_path: Path, run: Run
) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    config = tmp_path / "broker.conf"
    named = f"storePathRootDir={root}\n" if has_root else ""
    config.write_text(f"{STORE_CONFIG}{named}storePathCommitLog={root}/commitlog\n")
    next(damage for damage in DAMAGES if damage.kinds == {"log-torn"}).do(root)
    change(copy / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    before = content_of(root)
    outcome = run("check", copy)
    assert (outcome.status, outcome.out.splitlines()[0].split()[1]) == (1, f"{copy}/commitlog")
    assert "log-torn" not in run("check", copy, "--output", "json").out
    outcome = run("repair", copy, "--yes")
    assert outcome.status == 0, outcome
    assert content_of(root) == before
    assert bodies_of(copy) == ALL


def test_a_copy_without_the_log_leaves_the_originals_log_alone(
    root: Path, tmp_path: Path, run: Run
) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    shutil.rmtree(copy / "commitlog")
    config = tmp_path / "broker.conf"
    config.write_text(
        f"{STORE_CONFIG}storePathRootDir={root}\nstorePathCommitLog={root}/commitlog\n"
    )
    before = content_of(root, copy)
    for words in (("check", copy), ("repair", copy, "--yes", "--cut")):
        outcome = run(*words)
        assert outcome.status == 2
        for said in (str(copy), f"{root}/commitlog", "--log"):
            assert said in outcome.err
    # A broker has the original open: its log is no other's.
    lock = PosixFiles().lock(str(root / "lock"))
    try:
        for words in (("check", copy), ("repair", copy, "--yes")):
            outcome = run(*words, "--log", root / "commitlog")
            assert (outcome.status, "is in use by" in outcome.err) == (1, True)
    finally:
        lock.close()
    assert content_of(root, copy) == before
    outcome = run("check", copy, "--log", root / "commitlog")
    assert (outcome.status, outcome.out.splitlines()[0]) == (0, f"log: {root}/commitlog")


def test_a_repair_holds_the_lock_of_the_store_whose_log_it_writes(
    root: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    shutil.rmtree(copy / "commitlog")
    change(copy / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    locked = []

    def rebuild_with_a_look(*args: object, **named: object) -> list[str]:
        for held in (root, copy):
            with pytest.raises(BlockingIOError):
                PosixFiles().lock(str(held / "lock"))
        locked.append(root)
        return rebuild(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("rocketmq_tw.admin.store.repair.rebuild", rebuild_with_a_look)
    assert run("repair", copy, "--yes", "--log", root / "commitlog").status == 0
    assert locked == [root]
    for free in (root, copy):
        PosixFiles().lock(str(free / "lock")).close()


def test_no_broker_starts_between_the_look_and_the_repair(
    root: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    asked = []

    def ask(yes: bool, question: str) -> None:
        with pytest.raises(BlockingIOError):
            PosixFiles().lock(str(root / "lock"))
        asked.append(question)

    monkeypatch.setattr("rocketmq_tw.admin.store.repair.ask_first", ask)
    assert run("repair", root).status == 0
    assert len(asked) == 1


@pytest.mark.parametrize("has_lock", [True, False])
def test_no_broker_starts_while_a_store_is_copied(
    has_lock: bool, root: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    if not has_lock:
        (root / "lock").unlink()
    copies = []

    def copy_with_a_look(source: str, target: str, advance: Callable[[int], object]) -> None:
        with pytest.raises(BlockingIOError):
            PosixFiles().lock(str(root / "lock"))
        copies.append(target)
        copy_store(source, target, advance)

    monkeypatch.setattr("rocketmq_tw.admin.store.repair.copy_store", copy_with_a_look)
    target = tmp_path / "copy"
    assert run("repair", root, "--to", target).status == 0
    assert copies == [str(target)]
    PosixFiles().lock(str(root / "lock")).close()
    assert bodies_of(target) == ALL


@pytest.mark.parametrize("kind", ["pipe", "dangling", "loop"])
def test_no_copy_waits_for_what_is_no_file(kind: str, root: Path, tmp_path: Path, run: Run) -> None:
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    path = root / "config/odd"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(root / "nowhere" if kind == "dangling" else root)
    outcome = run("repair", root, "--to", tmp_path / "copy")
    assert outcome.status == 1
    assert f"{path} is " in outcome.err
    assert "move it away" in outcome.err
    assert not (tmp_path / "copy").exists()
    path.unlink()
    assert run("repair", root, "--to", tmp_path / "copy").status == 0


def test_a_copy_that_fails_leaves_nothing(
    root: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))

    def no_space(descriptor: int, data: bytes, position: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", no_space)
        outcome = run("repair", root, "--to", tmp_path / "copy")
    assert (outcome.status, "No space left" in outcome.err) == (1, True)
    assert f"{tmp_path}/copy/unfinished-copy/" in outcome.err
    needed = sum(path.stat().st_blocks * 512 for path in root.rglob("*") if path.name != "lock")
    told = re.search(r"; a copy takes (\d+) bytes, and \d+ are free at ", outcome.err)
    assert told is not None and 0 < int(told[1]) <= needed
    assert not (tmp_path / "copy").exists()


def test_a_copy_has_the_holes_of_a_sparse_file(tmp_path: Path) -> None:
    source = tmp_path / "store/commitlog"
    source.mkdir(parents=True)
    block = 64 * 1024
    with open(source / "0", "wb") as file:
        for number in range(8):
            file.seek(4 * number * block)
            file.write(b"x" * block)
        file.truncate(64 << 20)
    found = (source / "0").stat()
    if found.st_blocks * 512 >= 2 * 8 * block:
        pytest.skip("this file system keeps no holes")
    copy_store(str(tmp_path / "store"), str(tmp_path / "copy"), lambda _: None)
    made = tmp_path / "copy/commitlog/0"
    assert made.read_bytes() == (source / "0").read_bytes()
    assert made.stat().st_blocks <= found.st_blocks + 16


#: Runs a command and gets a signal once it has copied some files.
STOPPED = """
import os, sys
from rocketmq_tw.admin.main import main
from rocketmq_tw.admin.store import repairing
from rocketmq_tw.admin.tool import Tool

copy, left = repairing._copy_file, iter(range(3))

def copy_some(*arguments):
    copy(*arguments)
    if next(left, None) is None:
        os.kill(os.getpid(), int(sys.argv[1]))

repairing._copy_file = copy_some
main(sys.argv[2:], Tool())
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_copy_that_is_stopped_leaves_no_store(
    number: str, root: Path, tmp_path: Path, run: Run
) -> None:
    config, copy = tmp_path / "broker.conf", tmp_path / "copy"
    config.write_text(STORE_CONFIG)
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    words = ["store", "repair", str(root), "--to", str(copy), "-c", str(config)]
    # The tests may run where signals are ignored: under nohup.
    what = ["env", "--default-signal", sys.executable, "-c", STOPPED]
    what += [str(int(getattr(signal, number))), *words]
    stopped = subprocess.run(what, capture_output=True, text=True)
    if number != "SIGKILL":
        assert (stopped.returncode, "stopped" in stopped.stderr) == (130, True), stopped
        assert not copy.exists()
    else:
        assert stopped.returncode == -signal.SIGKILL
        assert [path.name for path in copy.iterdir()] == ["unfinished-copy"]
        outcome = run("repair", root, "--to", copy)
        assert outcome.status == 2
        assert f"{copy} has what a repair that was killed has left: remove it" in outcome.err
        shutil.rmtree(copy)
    assert run("repair", root, "--to", copy).status == 0
    assert bodies_of(copy) == ALL


def test_a_copy_is_made_in_an_empty_directory_too(root: Path, tmp_path: Path, run: Run) -> None:
    """As where another disk is mounted."""
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    (tmp_path / "copy").mkdir()
    assert run("repair", root, "--to", tmp_path / "copy").status == 0
    assert not (tmp_path / "copy/unfinished-copy").exists()
    assert bodies_of(tmp_path / "copy") == ALL


def test_a_copy_is_as_open_to_others_as_the_store(root: Path, tmp_path: Path, run: Run) -> None:
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    (root / "config/topics.json").chmod(0o600)
    (root / "config/consumerOffset.json").chmod(0o440)
    assert run("repair", root, "--to", tmp_path / "copy").status == 0
    names = ("topics.json", "consumerOffset.json")
    modes = [(tmp_path / "copy/config" / name).stat().st_mode & 0o777 for name in names]
    assert modes == [0o600, 0o640]


def owners_below(root: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.lstat().st_uid, path.lstat().st_gid) for path in (root, *root.rglob("*"))}


def test_what_a_repair_replaces_is_as_open_to_others_as_before(root: Path, run: Run) -> None:
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    paths = [path for path in root.rglob("*") if path.is_file() and path.name != "lock"]
    for path in paths:
        path.chmod(0o600)
    assert run("repair", root, "--yes").status == 0
    assert {path.stat().st_mode & 0o777 for path in paths if path.exists()} == {0o600}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_repair_by_root_leaves_the_store_to_its_user(
    root: Path, tmp_path: Path, run: Run
) -> None:
    """Also one whose log is elsewhere, and all that a check makes."""
    log, copy = tmp_path / "elsewhere", tmp_path / "copy"
    broken = root / "consumequeue/Topic/0" / f"{0:020}"
    change(broken, 40, bytes(20))
    (root / "lock").unlink(missing_ok=True)
    for path in (root, *root.rglob("*")):
        os.lchown(path, 65534, 65533)
    assert run("repair", root, "--to", copy).status == 0
    config = tmp_path / "broker.conf"
    (root / "commitlog").rename(log)
    config.write_text(f"{STORE_CONFIG}storePathRootDir={root}\nstorePathCommitLog={log}\n")
    assert run("check", root).status == 1
    assert (root / "lock").exists()
    assert set(owners_below(root).values()) == {(65534, 65533)}
    assert run("repair", root, "--yes").status == 0
    assert run("check", root).status == 0
    for place in (root, log, copy):
        assert set(owners_below(place).values()) == {(65534, 65533)}, place


#: Runs a command and ends as by `kill -9` when a method of the store is called.
KILLED = """
import os, signal, sys
from rocketmq_tw.admin.main import main
from rocketmq_tw.admin.tool import Tool
from rocketmq_tw.store.errors import DamagedStoreError
from rocketmq_tw.store.message_store import MessageStore

setattr(MessageStore, sys.argv[1], lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
main(sys.argv[2:], Tool())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("method", ["load", "close"])
def test_a_repair_by_root_that_is_killed_leaves_the_store_to_its_user(
    method: str, root: Path, tmp_path: Path
) -> None:
    """Before anything is built again, and when all is."""
    config = tmp_path / "broker.conf"
    config.write_text(STORE_CONFIG)
    queue = root / "consumequeue/Topic/0" / f"{0:020}"
    change(queue, 40, bytes(20))
    for path in (root, *root.rglob("*")):
        os.lchown(path, 65534, 65533)
    queue.chmod(0o600)
    words = ["store", "repair", str(root), "--yes", "-c", str(config)]
    killed = subprocess.run([sys.executable, "-c", KILLED, method, *words], capture_output=True)
    assert killed.returncode == -9, killed.stderr
    assert (root / "abort").exists()
    assert queue.exists() is (method == "close")
    assert not queue.exists() or queue.stat().st_mode & 0o777 == 0o600
    assert set(owners_below(root).values()) == {(65534, 65533)}


def test_two_logs_of_one_store_are_told(root: Path, tmp_path: Path, run: Run) -> None:
    log = Path(shutil.copytree(root / "commitlog", tmp_path / "elsewhere"))
    config = tmp_path / "broker.conf"
    config.write_text(f"{STORE_CONFIG}storePathRootDir={root}\nstorePathCommitLog={log}\n")
    outcome = run("check", root)
    assert outcome.status == 2
    for said in (f"{root}/commitlog", str(log), "--log"):
        assert said in outcome.err
    assert run("check", root, "--log", log).out.startswith(f"log: {log}\n")
    assert run("check", root, "--log", root / "commitlog").out.startswith(
        f"log: {root}/commitlog\n"
    )


@pytest.mark.parametrize(
    "place",
    [
        "consumequeue/Topic",
        "consumequeue/Topic/1",
        f"consumequeue/Topic/1/{0:020}",
        "checkpoint",
        "index",
    ],
)
@pytest.mark.parametrize("has_second_name", [True, False])
def test_a_repair_in_place_changes_no_file_of_two_names(
    place: str, has_second_name: bool, root: Path, tmp_path: Path, run: Run
) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    next(damage for damage in DAMAGES if damage.kinds == {"log-torn"}).do(copy)
    change(copy / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    linked = copy / place
    if linked.is_dir():
        shutil.rmtree(linked)
    else:
        linked.unlink()
    if not has_second_name:
        linked.symlink_to(root / place)
    elif (root / place).is_dir():
        shutil.copytree(root / place, linked, copy_function=os.link)
    else:
        os.link(root / place, linked)
    before = content_of(root)
    outcome = run("repair", copy, "--yes")
    assert (outcome.status, "is a link" in outcome.err) == (2, True)
    assert content_of(root) == before
    run("repair", copy, "--to", tmp_path / "repaired")
    assert content_of(root) == before
    assert bodies_of(tmp_path / "repaired") == ALL


@pytest.mark.parametrize(
    ("place", "is_directory"),
    [
        ("consumequeue", False),
        ("consumequeue/Topic", False),
        ("consumequeue/Topic/1", False),
        (f"consumequeue/Topic/1/{200:020}", True),
        ("consumequeue_ext", False),
        ("index", False),
        (f"index/{20231114221321000}", True),
        ("checkpoint", True),
        ("abort", True),
        ("deletedtopics", True),
        (f"commitlog/{4096:020}", True),
    ],
)
def test_what_stands_in_the_way_is_told_before_anything_changes(
    place: str, is_directory: bool, root: Path, tmp_path: Path, run: Run
) -> None:
    next(damage for damage in DAMAGES if damage.kinds == {"log-torn"}).do(root)
    path = root / place
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if is_directory:
        path.mkdir()
    else:
        path.write_text("mine")
    before = content_of(root)
    found = json.loads(run("check", root, "--output", "json").out)["findings"]
    assert [each["file"] for each in found if each["kind"] == "file-kind"] == [place]
    outcome = run("repair", root, "--yes", "--cut")
    assert outcome.status == 1
    assert f"belongs: {place}: it is " in outcome.err
    assert "move it away" in outcome.err
    assert content_of(root) == before
    path.rmdir() if is_directory else path.unlink()
    run("repair", root, "--yes", "--cut")
    assert run("check", root, "--output", "json").json["findings"] == []


@pytest.mark.parametrize("start", [7, 409_600])
@pytest.mark.parametrize("size", [0, 4096])
def test_a_stray_file_of_the_log_is_told_before_anything_changes(
    start: int, size: int, root: Path, run: Run
) -> None:
    next(damage for damage in DAMAGES if damage.kinds == {"log-torn"}).do(root)
    (root / "commitlog" / f"{start:020}").write_bytes(bytes(size))
    before = content_of(root)
    outcome = run("repair", root, "--yes")
    assert outcome.status == 1
    assert f"commitlog/{start:020}" in outcome.err
    assert "move it away" in outcome.err
    assert content_of(root) == before


def test_a_file_among_the_topics_is_told(root: Path, run: Run) -> None:
    (root / "consumequeue/.swp").write_text("mine")
    (root / "consumequeue/Topic/notes.txt").write_text("mine")
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    for line in (
        "consumequeue/.swp: no file of that name belongs here: move it away (restore)",
        "consumequeue/Topic/notes.txt: no file of that name belongs here: move it away (restore)",
    ):
        assert line in run("check", root).out.splitlines()
    assert run("repair", root, "--yes").status == 1
    assert bodies_of(root) == ALL
    assert (root / "consumequeue/Topic/notes.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", ["log", "queues", "second name"])
def test_a_repair_in_place_follows_no_link_out_of_the_store(
    kind: str, root: Path, tmp_path: Path, run: Run
) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    change(copy / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    linked = copy / ("consumequeue" if kind == "queues" else "commitlog")
    if kind == "second name":
        (linked / f"{4096:020}").unlink()
        os.link(root / "commitlog" / f"{4096:020}", linked / f"{4096:020}")
    else:
        shutil.rmtree(linked)
        linked.symlink_to(root / linked.name)
    (copy / "checkpoint").write_bytes(b"short")
    before = content_of(root)
    outcome = run("repair", copy, "--yes")
    assert (outcome.status, "is a link" in outcome.err) == (2, True)
    assert content_of(root) == before
    assert run("repair", copy, "--to", tmp_path / "repaired").status == 0
    assert content_of(root) == before
    assert bodies_of(tmp_path / "repaired") == ALL


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_repair_in_place_bears_a_table_that_a_kill_left_with_two_names(
    is_elsewhere: bool, root: Path, tmp_path: Path, run: Run
) -> None:
    table = root / "config" / "consumerOffset.json"
    table.parent.mkdir(exist_ok=True)
    table.write_text('{"offsetTable":{}}')
    os.link(table, tmp_path / "mine" if is_elsewhere else f"{table}.bak")
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    assert run("repair", root, "--yes").status == (2 if is_elsewhere else 0)


@pytest.mark.parametrize("named_by", ["--log", "--log with the link", "-c"])
def test_a_linked_log_is_repaired_in_place_where_it_is_named(
    named_by: str, root: Path, tmp_path: Path, run: Run
) -> None:
    log = tmp_path / "elsewhere"
    (root / "commitlog").rename(log)
    (root / "commitlog").symlink_to(log)
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    outcome = run("repair", root, "--yes")
    assert (outcome.status, "name it with --log" in outcome.err) == (2, True)
    words: tuple[object, ...] = ()
    if named_by == "-c":
        config = tmp_path / "broker.conf"
        config.write_text(f"{STORE_CONFIG}storePathRootDir={root}\nstorePathCommitLog={log}\n")
    else:
        words = ("--log", log if named_by == "--log" else root / "commitlog")
    # A copy has the log in it, as without a name.
    assert run("repair", root, "--to", tmp_path / "copy", *words).status == 0
    outcome = run("repair", root, "--yes", *words)
    assert outcome.status == 0, outcome
    assert (root / "commitlog").is_symlink()
    assert bodies_of(root) == bodies_of(tmp_path / "copy") == ALL
    assert run("check", root).status == 0


@pytest.mark.parametrize("of", ["store", "copy"])
def test_a_configuration_that_names_no_place_leaves_a_linked_log_alone(
    of: str, root: Path, tmp_path: Path, run: Run
) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    shutil.rmtree(copy / "commitlog")
    (copy / "commitlog").symlink_to(root / "commitlog")
    change(copy / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    # The store's own names its log, and the one of the copy its link.
    its = {"store": root, "copy": copy}[of]
    config = tmp_path / "broker.conf"
    config.write_text(f"{STORE_CONFIG}storePathRootDir={its}\nstorePathCommitLog={its}/commitlog\n")
    before = content_of(root, copy)
    outcome = run("repair", copy, "--yes")
    assert (outcome.status, "is a link" in outcome.err) == (2, True)
    assert content_of(root, copy) == before


def test_no_copy_is_made_inside_of_the_store(root: Path, run: Run) -> None:
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    outcome = run("repair", root, "--to", root / "sub")
    assert (outcome.status, "inside of the store" in outcome.err) == (2, True)
    assert not (root / "sub").exists()


def test_a_repair_that_is_planned_changes_nothing(root: Path, tmp_path: Path, run: Run) -> None:
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    before = content_of(root)
    for words in (("--yes",), (), ("--to", tmp_path / "copy")):
        outcome = run("repair", root, *words, "--dry-run")
        assert outcome.status == 0, outcome
        assert f"consumequeue/Topic/0/{0:020} at 40: it has no unit 2" in outcome.out
        assert outcome.out.endswith("nothing is changed\n")
    assert content_of(root) == before
    assert not (tmp_path / "copy").exists()


def test_a_store_without_its_log_is_not_repaired(root: Path, run: Run) -> None:
    for path in (root / "commitlog").iterdir():
        path.unlink()
    before = sorted(root.rglob("*"))
    outcome = run("repair", root, "--yes", "--cut")
    assert (outcome.status, "has no log" in outcome.err) == (1, True)
    assert sorted(root.rglob("*")) == before


def test_a_repair_makes_no_index_of_a_guessed_size(root: Path, run: Run) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["store", "repair", str(root), "--yes"], Tool())
    assert ended.value.code == 2
    assert run("check", root).status == 0


def test_a_repair_of_a_sound_store_changes_nothing(root: Path, run: Run) -> None:
    outcome = run("repair", root, "--yes")
    assert (outcome.status, outcome.out) == (
        0,
        f"log: {root}/commitlog\nnothing is wrong, nothing is changed\n",
    )


def test_a_repair_keeps_where_queues_end_whose_messages_are_gone(root: Path, run: Run) -> None:
    store = open_again(root)
    put(store, *(make_message(b"later", topic="Later") for _ in range(3)))
    store.close()
    for start in (0, 4096):
        (root / "commitlog" / f"{start:020}").unlink()
    # The queues of Topic go on where they were, one of them after a damage.
    change(root / "consumequeue/Topic/2" / f"{600:020}", 0, bytes(20))
    assert run("check", root).status == 1
    assert run("repair", root, "--yes").status == 1, "Later and its topic are not in topics.json"
    store = open_again(root)
    assert queues_of(store) == {"Topic": {0, 1, 2}, "Later": {0}}
    assert [store.max_queue_offset("Topic", queue) for queue in range(3)] == [34, 33, 33]
    store.close()


def expire_all(root: Path) -> None:
    """Lets the log lose all messages of Topic by age, and some of Later."""
    end = log_end(root)
    store = open_again(root)
    put(store, *(make_message(b"later %d" % number, topic="Later") for number in range(60)))
    store.close()
    for path in (root / "commitlog").iterdir():
        if int(path.name) <= end:
            path.unlink()
    (root / "config/topics.json").write_text('{"topicConfigTable":{"Topic":{},"Later":{}}}')


def next_offset_of(root: Path, queue_id: int, topic: str = "Topic") -> int:
    """Opens the store as a broker; returns which queue offset a message gets."""
    store = open_again(root)
    put(store, make_message(b"next", topic=topic, queue_id=queue_id))
    end = store.max_queue_offset(topic, queue_id)
    store.close()
    return end - 1


def cut_off(queue: Path) -> None:
    last = queue / f"{600:020}"
    last.write_bytes(last.read_bytes()[:90])


def lose_a_file(queue: Path) -> None:
    (queue / f"{200:020}").unlink()
    change(queue / f"{600:020}", 20, bytes(20))


@pytest.mark.parametrize(
    "spoil",
    [
        cut_off,
        lose_a_file,
        lambda queue: (queue / f"{400:020}").write_bytes(b"short"),
        lambda queue: change(queue / f"{0:020}", 40, bytes(20)),
        lambda queue: change(queue / f"{600:020}", 0, b"\x10" + bytes(7)),
        lambda queue: (queue / ".swp").write_text("mine"),
    ],
    ids=["cut off", "a file lost", "short", "zeros", "a wild unit", "a foreign file"],
)
def test_a_queue_whose_messages_are_all_gone_goes_on_where_it_was(
    spoil: Callable[[Path], object], root: Path, run: Run
) -> None:
    expire_all(root)
    assert run("check", root).status == 0
    spoil(root / "consumequeue/Topic/0")
    # So that queues are built again whatever the check says of this one.
    change(root / "consumequeue/Later/0" / f"{1000:020}", 40, bytes(20))
    outcome = run("repair", root, "--yes")
    assert "index and checkpoint are built again" in outcome.out
    assert (root / "consumequeue/Topic/0/.swp").exists() == (outcome.status == 1), outcome
    assert next_offset_of(root, 0) == 34
    assert next_offset_of(root, 1) == 33


@pytest.mark.parametrize(
    ("at", "length", "holes"),
    [
        (0, 200, "units 0 to 9"),
        (200, 200, "units 10 to 19"),
        (400, 200, "units 20 to 29"),
        (200, 400, "units 10 to 29"),
        (300, 100, "units 15 to 19"),
    ],
)
def test_zeros_among_units_whose_messages_are_gone_are_found(
    at: int, length: int, holes: str, root: Path, run: Run
) -> None:
    """A broker that opens such a store ends the queue there, and gives offsets again."""
    expire_all(root)
    for start in range(at, at + length, 100):
        file = root / "consumequeue/Topic/0" / f"{start - start % 200:020}"
        change(file, start % 200, bytes(100))
    outcome = run("check", root)
    assert (outcome.status, f"{holes} are zeros" in outcome.out) == (1, True), outcome
    assert run("repair", root, "--yes").status == 0
    assert next_offset_of(root, 0) == 34


def test_a_queue_that_may_have_lost_its_end_is_told(root: Path, run: Run) -> None:
    expire_all(root)
    last = root / "consumequeue/Topic/0" / f"{600:020}"
    last.write_bytes(last.read_bytes()[:50])
    outcome = run("repair", root, "--yes")
    assert (
        "consumequeue/Topic/0: it is damaged, and the log has none of its messages: it goes on from"
        " 32, the last place that is known" in outcome.out
    )
    assert next_offset_of(root, 0) == 32


def test_a_queue_without_units_does_not_begin_at_0_again(root: Path, run: Run) -> None:
    expire_all(root)
    queue = root / "consumequeue/Topic/0"
    for start in (0, 200, 400):
        (queue / f"{start:020}").unlink()
    (queue / f"{600:020}").write_bytes(b"")
    change(root / "consumequeue/Later/0" / f"{1000:020}", 40, bytes(20))
    assert "goes on from 30" in run("repair", root, "--yes").out
    assert next_offset_of(root, 0) == 30


def test_a_repair_removes_no_file_that_is_not_the_stores(root: Path, run: Run) -> None:
    foreign = [
        root / name
        for name in (
            "consumequeue/Topic/1/.swp",
            "consumequeue/Topic.bak/0" + f"/{0:020}",
            "consumequeue/Topic/007" + f"/{0:020}",
            "index/notes",
        )
    ]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((root / "consumequeue/Topic/0" / f"{0:020}").read_bytes())
    before = {path: path.read_bytes() for path in foreign}
    change(root / "consumequeue/Topic/0" / f"{200:020}", 40, bytes(20))
    found = json.loads(run("check", root, "--output", "json").out)["findings"]
    assert {each["file"] for each in found if each["kind"] == "file-name"} == {
        "consumequeue/Topic/1/.swp",
        "consumequeue/Topic.bak",
        "consumequeue/Topic/007",
    }
    assert {each["kind"] for each in found} == {"file-name", "unit-missing"}
    run("repair", root, "--yes")
    assert {path: path.read_bytes() for path in before} == before
    assert bodies_of(root) == ALL
    left = json.loads(run("check", root, "--output", "json").out)["findings"]
    assert {each["kind"] for each in left} == {"file-name"}


def test_queues_that_were_all_cut_off_get_the_configured_size(root: Path, run: Run) -> None:
    for path in (root / "consumequeue").rglob("*"):
        if path.is_file() and int(path.name):
            path.unlink()
        elif path.is_file():
            path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(SystemExit) as ended:
        main(["store", "repair", str(root), "--yes"], Tool())
    assert ended.value.code == 2, "without -c it would be a guess"
    outcome = run("repair", root, "--yes")
    assert outcome.status == 0, outcome
    sizes = {path.stat().st_size for path in (root / "consumequeue").rglob("*") if path.is_file()}
    assert sizes == {200}
    assert bodies_of(root) == ALL


def test_one_queue_file_that_was_cut_off_is_repaired(root: Path, run: Run) -> None:
    # The first one that is met, with bytes that make no unit.
    path = root / "consumequeue/Topic/0" / f"{0:020}"
    path.write_bytes(path.read_bytes()[:110])
    outcome = run("repair", root, "--yes")
    assert outcome.status == 0, outcome
    assert bodies_of(root) == ALL


def test_a_repair_leaves_what_is_right_and_says_what_was_wrong(root: Path, run: Run) -> None:
    (root / "checkpoint").unlink()
    before = content_of(root / "consumequeue", root / "commitlog")
    outcome = run("repair", root, "--yes")
    assert outcome.status == 0, outcome
    assert "checkpoint: it is missing" in outcome.out
    assert "index and checkpoint are built again" in outcome.out
    assert "queue" not in outcome.out.replace("queues,", "")
    assert content_of(root / "consumequeue", root / "commitlog") == before
    assert run("check", root).status == 0


def test_a_repair_of_the_index_leaves_the_queues(root: Path, run: Run) -> None:
    max((root / "index").iterdir()).unlink()
    before = content_of(root / "consumequeue")
    outcome = run("repair", root, "--yes")
    assert outcome.status == 0, outcome
    assert "index and checkpoint are built again" in outcome.out
    assert "queue files are missing" not in outcome.out
    assert content_of(root / "consumequeue") == before


@pytest.mark.parametrize("name", ["topics", "strange", "wheel"])
def test_what_a_repair_does_not_mend_stays(name: str, root: Path, run: Run) -> None:
    if name == "topics":
        (root / "config/topics.json").unlink()
    elif name == "strange":
        (root / "consumequeue/Topic/notanumber").mkdir()
        (root / "consumequeue/Topic/notanumber/file").write_text("mine")
    else:
        (root / "timerwheel").write_bytes(bytes(64))
    before = content_of(root)
    outcome = run("repair", root, "--yes")
    assert outcome.status == 1
    assert outcome.out.endswith("a repair mends none of it: nothing is changed\n")
    assert content_of(root) == before
    # Nor beside what it mends.
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    outcome = run("repair", root, "--yes")
    assert outcome.status == 1
    assert "built all again" in outcome.out
    if name == "strange":
        assert (root / "consumequeue/Topic/notanumber/file").read_text() == "mine"


def test_what_is_not_the_logs_damages_it_not(root: Path, run: Run) -> None:
    """A file system of its own has `lost+found`."""
    (root / "commitlog/lost+found").mkdir()
    assert run("check", root).out.splitlines()[-1] == "nothing is wrong"
    (root / "commitlog/notes.txt").write_text("mine")
    line = "commitlog/notes.txt: no file of that name belongs here: move it away (restore)"
    assert line in run("check", root).out.splitlines()
    (root / "consumequeue/Topic/0/notes.txt").write_text("mine")
    assert "damaged" not in run("stats", root).out
    for words in (["log", root, "-t", "nix"], ["queue", root, "Topic", 0, "--from", 10_000]):
        outcome = run("dump", *words)
        assert (outcome.status, outcome.out) == (1, "")
        assert "store check" not in outcome.err and "whole" not in outcome.err


def test_stats_count_each_topic(root: Path, run: Run) -> None:
    counted = run("stats", root, "--output", "json").json
    (topic,) = counted["topics"]
    assert (topic["topic"], topic["messages"], topic["queues"]) == ("Topic", MESSAGES, 3)
    assert counted["messages"] == sum(size["messages"] for size in counted["sizes"]) == MESSAGES
    lines = run("stats", root).lines
    assert lines[0][:3] == ["Topic", "Queues", "Messages"]


def test_dump_shows_records_units_and_entries(root: Path, run: Run) -> None:
    outcome = run("dump", "log", root, "--from", 4000, "--count", 2, "--output", "json")
    first, second = map(json.loads, outcome.out.splitlines())
    assert first["physicalOffset"] >= 4000
    assert second["queueOffset"] in (first["queueOffset"], first["queueOffset"] + 1)
    assert first["properties"]["TAGS"] == "a"
    assert first["body"].startswith("body ")
    assert first["bornHost"] == "127.0.0.1:40000"
    text = run("dump", "log", root, "--count", 1).out
    assert text.startswith("0 +") and text.endswith("body 0\n")

    units = run("dump", "queue", root, "Topic", 1, "--from", 5, "--output", "json").out
    unit = json.loads(units.splitlines()[0])
    assert (unit["queueOffset"], unit["tagsCode"]) == (5, 97)
    assert len(units.splitlines()) == 28

    words = ("dump", "index", root, "--key", "Topic#k7", "--output", "json")
    (entry,) = map(json.loads, run(*words).out.splitlines())
    (record,) = map(
        json.loads,
        run("dump", "log", root, "--from", entry["physicalOffset"], "--count", 1,
            "--output", "json").out.splitlines(),
    )  # fmt: skip
    assert record["properties"]["KEYS"] == "k7 both"
    # An entry has whole seconds alone, counted from the first message's time.
    assert 0 <= record["storeTimestamp"] - entry["storeTimestamp"] < 1000
    text = run("dump", "index", root, "--key", "Topic#k7").out
    assert re.search(r" \d\d:\d\d:\d\d, before it ", text), text


def test_dump_of_a_queue_that_is_not_there_fails(root: Path, run: Run) -> None:
    outcome = run("dump", "queue", root, "Topic", 9)
    assert outcome.status == 1
    assert "no queue 9 of the topic Topic: it has 0" in outcome.err
    assert "did you mean Topic?" in run("dump", "queue", root, "Topc", 0).err
    assert "store stats shows the topics" in run("dump", "queue", root, "nix", 0).err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("log", "--from", 10**12), "the log has no record from 1000000000000 on"),
        (("log", "-t", "nix"), "the log has no record of nix from 0 on: store stats shows"),
        (("queue", "Topic", 1, "--from", 99), "Topic/1 has no unit from 99 on: it ends at 33"),
        (("index", "--key", "Topic#nix"), "the index has no entry of Topic#nix from 0 on"),
    ],
)
def test_dump_of_nothing_fails(
    words: tuple[str | int, ...], said: str, root: Path, run: Run
) -> None:
    outcome = run("dump", words[0], root, *words[1:])
    assert (outcome.status, outcome.out) == (1, "")
    assert said in outcome.err


def index_entries(run: Run, root: Path) -> list[str]:
    return run("dump", "index", root, "--count", 1000).out.splitlines()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda file: file.write_bytes(b""), "it has 0 bytes, with 16 slots and 40 entries"),
        (lambda file: file.write_bytes(bytes(10)), "it has 10 bytes, with 16 slots and 40"),
        (lambda file: change(file, 36, b"\x7f"), "its header cannot be: "),
        (lambda file: change(file, 36, b"\xff"), "its header cannot be: "),
        (lambda file: (file.unlink(), os.mkfifo(file)), "it is no file"),
        (lambda file: (file.unlink(), file.mkdir()), "it is no file"),
        (lambda file: (file.unlink(), file.symlink_to("nowhere")), "it is no file"),
    ],
    ids=["empty", "short", "too many", "negative", "pipe", "directory", "dangling"],
)
def test_a_dump_of_the_index_passes_over_what_cannot_be_read(
    spoil: Callable[[Path], object], said: str, root: Path, run: Run
) -> None:
    all_entries = index_entries(run, root)
    file = min((root / "index").iterdir())
    spoil(file)
    outcome = run("dump", "index", root, "--count", 1000)
    assert outcome.status == 0, outcome
    left = [line for line in all_entries if not line.startswith(file.name)]
    assert outcome.out.splitlines() == left
    assert outcome.err.startswith(f"rmqadmin: index/{file.name}")
    assert said in outcome.err
    outcome = run("dump", "index", root, "--key", "Topic#k1")
    assert outcome.status == 1
    assert "no entry of Topic#k1 from 0 on in files that are whole: store check" in outcome.err


def test_a_dump_of_the_index_reads_only_files_of_the_index(root: Path, run: Run) -> None:
    before = index_entries(run, root)
    for name in ("12", "\u0661" * 17, f"{1:018}"):
        (root / "index" / name).write_bytes(b"mine")
    os.mkfifo(root / "index" / "13")
    outcome = run("dump", "index", root, "--count", 1000)
    assert (outcome.status, outcome.err, outcome.out.splitlines()) == (0, "", before)


def test_a_dump_of_an_index_of_another_size_asks_for_the_configuration(root: Path) -> None:
    for words in (("index",), ("index", "--key", "Topic#k1")):
        with pytest.raises(SystemExit) as ended:
            main(["store", "dump", words[0], str(root), *words[1:]], Tool())
        assert ended.value.code == 2


def test_a_dump_of_an_index_that_is_a_file_says_so(root: Path, run: Run) -> None:
    shutil.rmtree(root / "index")
    (root / "index").write_text("mine")
    outcome = run("dump", "index", root)
    assert outcome.status == 1
    assert "index: it is a file, and a directory belongs here" in outcome.err


def test_a_dump_of_the_log_tells_what_it_passes_over(root: Path, run: Run) -> None:
    next(damage for damage in DAMAGES if damage.kinds == {"log-torn"}).do(root)
    assert run("dump", "log", root, "--count", 1000).err == ""
    change(root / "commitlog" / f"{4096:020}", 4, b"\0\0\0\0")
    outcome = run("dump", "log", root, "--count", 1000)
    assert (outcome.status, len(outcome.out.splitlines())) == (0, MESSAGES - 1)
    assert outcome.err.startswith(f"rmqadmin: commitlog/{4096:020} at 0: no whole record from 4096")
    for path in (root / "commitlog").iterdir():
        path.unlink()
        path.mkdir()
    outcome = run("dump", "log", root)
    assert outcome.status == 1
    assert "the log has no record from 0 on where it is whole: store check" in outcome.err
    # Counts say it too.
    assert "the log is damaged at 4 places: `store check`" in run("stats", root).out


@pytest.mark.parametrize(
    ("topic", "properties", "is_taken"),
    [(b"T" * 200, b"", True), (b"T", b"A\x01" + b"x" * 0x8000 + b"\x02", False)],
)
def test_a_record_of_odd_lengths_is_taken_as_by_a_start(
    topic: bytes, properties: bytes, is_taken: bool, tmp_path: Path, run: Run
) -> None:
    body = b"body"
    size = FIXED[0].sizeof() + len(body) + 1 + len(topic) + 2 + len(properties)
    fields: dict[str, object] = dict.fromkeys([each.name for each in FIXED[0].subcons], 0)
    fields |= {"size": size, "magic": MAGIC_V1, "body_crc": crc32(body) & 0x7FFFFFFF}
    fields |= {"born_ip": bytes(4), "store_ip": bytes(4), "body_length": len(body)}
    lengths = bytes([len(topic)]) + topic + len(properties).to_bytes(2) + properties
    log = tmp_path / "odd/commitlog"
    log.mkdir(parents=True)
    record = FIXED[0].build(fields) + body + lengths
    (log / f"{0:020}").write_bytes(record.ljust(1 << 16, b"\0"))
    config = small_config(
        store_path_root_dir=str(log.parent),
        mapped_file_size_commit_log=1 << 16,
        max_message_size=1 << 16,
    )
    store = MessageStore(config, PosixFiles(), ManualClock())
    store.load()
    assert store.end_offset == size * is_taken
    store.close()
    (log / f"{0:020}").write_bytes(record.ljust(1 << 16, b"\0"))
    (tmp_path / "broker.conf").write_text("mappedFileSizeCommitLog=65536\n")
    outcome = run("dump", "log", log.parent)
    assert outcome.status == (0 if is_taken else 1)
    assert outcome.out.startswith(f"0 +{size} {topic.decode()}/0" if is_taken else "")


@pytest.mark.parametrize("kind", ["missing", "short", "directory"])
def test_a_dump_of_a_queue_tells_what_it_passes_over(kind: str, root: Path, run: Run) -> None:
    file = root / "consumequeue/Topic/1" / f"{200:020}"
    if kind == "short":
        file.write_bytes(file.read_bytes()[:50])
    else:
        file.unlink()
    if kind == "directory":
        file.mkdir()
    outcome = run("dump", "queue", root, "Topic", 1, "--count", 1000, "--output", "json")
    offsets = [json.loads(line)["queueOffset"] for line in outcome.out.splitlines()]
    left = [10, 11] if kind == "short" else []
    assert (outcome.status, offsets) == (0, [*range(10), *left, *range(20, 33)])
    assert f"rmqadmin: consumequeue/Topic/1/{200:020}" in outcome.err


def test_a_dump_of_a_queue_that_cannot_be_read_says_so(root: Path, run: Run) -> None:
    queue = root / "consumequeue/Topic/1"
    for path in queue.iterdir():
        path.write_bytes(b"short")
    outcome = run("dump", "queue", root, "Topic", 1)
    assert outcome.status == 1
    assert "Topic/1 has no unit from 0 on: it ends at 0: store check shows" in outcome.err
    shutil.rmtree(queue)
    queue.write_text("mine")
    outcome = run("dump", "queue", root, "Topic", 1)
    assert outcome.status == 1
    assert "has no queue 1 of the topic Topic: store check shows" in outcome.err
    assert "did you mean Topic?" in run("dump", "queue", root, "Topic/1", 0).err


def test_a_terminal_shows_how_far_the_check_is(root: Path) -> None:
    config = root.parent / "broker.conf"
    config.write_text(STORE_CONFIG)
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-c",
        "from rocketmq_tw.admin.main import main; main()",
        *("store", "check", str(root), "-c", str(config)),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, timeout=120)
    os.close(theirs)
    shown = b""
    # Without a writer the other end is an error once all is read.
    with suppress(OSError):
        while data := os.read(ours, 65536):
            shown += data
    os.close(ours)
    assert done.returncode == 0
    assert done.stdout.decode().endswith("nothing is wrong\n")
    assert b"reading the log" in shown
    assert b"100%" in shown


def test_a_terminal_shows_how_far_a_repair_is(
    root: Path, run: Run, stderr_terminal: Callable[[], io.StringIO]
) -> None:
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    stream = stderr_terminal()
    assert run("repair", root, "--yes").status == 0
    shown = stream.getvalue()
    assert shown.count("100%") == 3
    assert "building again" in shown


def test_a_terminal_shows_how_far_a_count_is(
    root: Path, run: Run, stderr_terminal: Callable[[], io.StringIO]
) -> None:
    stream = stderr_terminal()
    assert run("stats", root).status == 0
    shown = stream.getvalue()
    assert "reading the log" in shown and "100%" in shown


def test_a_load_tells_how_much_of_the_log_it_has_read(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    config = small_config(store_path_root_dir=str(root))
    store = MessageStore(config, PosixFiles(), ManualClock())
    told: list[int] = []
    store.load(told.append)
    end = store.end_offset
    store.close()
    assert sum(told) == end


@pytest.mark.parametrize("words", [("log", "-t", "nix"), ("index", "--key", "Topic#nix")])
def test_a_terminal_shows_how_far_a_dump_is(
    words: tuple[str, ...], root: Path, run: Run, stderr_terminal: Callable[[], io.StringIO]
) -> None:
    stream = stderr_terminal()
    assert run("dump", words[0], root, *words[1:]).status == 1
    shown = stream.getvalue()
    assert f"\rreading the {words[0]}: " in shown
    # It is gone before the command says how it ended.
    assert shown.split("\r")[-1].startswith("\x1b[Krmqadmin: ")


def test_a_repair_builds_further_queues_that_the_configuration_does_not_name(
    root: Path, run: Run
) -> None:
    config = small_config(
        store_path_root_dir=str(root), enable_multi_dispatch=True, enable_lmq=True
    )
    store = MessageStore(config, PosixFiles(), ManualClock(START_MS + 1000))
    store.load()
    further = b"INNER_MULTI_DISPATCH\x01%LMQ%one\x02"
    put(store, *(make_message(b"light", properties=further) for _ in range(3)))
    store.close()
    assert run("check", root).status == 0
    change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
    assert run("repair", root, "--yes").status == 0
    store = open_again(root)
    assert store.max_queue_offset("%LMQ%one", 0) == 3
    store.close()
