"""A sound store has no findings; each damage is found and called by its name."""

import os
import shutil
import struct
from pathlib import Path

import attrs
import pytest

from rocketmq_tw.formats.record import PLACE_AT
from rocketmq_tw.storecheck.check import Summary, check_store
from rocketmq_tw.storecheck.findings import Finding, Findings, Remedy
from rocketmq_tw.storecheck.layout import NoStoreError, Sizes, Store
from tests.support.damaged_stores import (
    DAMAGES,
    FIRST,
    MESSAGES,
    OTHER_DAMAGES,
    QUEUE,
    SECOND,
    SIZES,
    Damage,
    change,
    log_end,
    make_store,
    open_again,
    record_of,
)
from tests.support.stores import make_message, put


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "store"
    make_store(root)
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "store"))


def found_in(root: Path) -> tuple[Summary, list[Finding]]:
    found: list[Finding] = []
    summary, findings = check_store(Store(str(root), SIZES), found.append)
    assert findings.count >= len(found)
    return summary, found


def test_a_sound_store_has_no_findings(root: Path) -> None:
    read = 0

    def advance(count: int) -> None:
        nonlocal read
        read += count

    found: list[Finding] = []
    summary, _ = check_store(Store(str(root), SIZES), found.append, advance)
    assert found == []
    assert (summary.records, summary.queues, summary.log_end) == (MESSAGES, 3, log_end(root))
    assert summary.index_entries == 2 * MESSAGES
    assert summary.clean
    assert 0 < read <= 4096 * len(list((root / "commitlog").iterdir()))


@pytest.mark.parametrize("damage", DAMAGES + OTHER_DAMAGES, ids=lambda damage: damage.name)
def test_damage_is_found(damage: Damage, root: Path) -> None:
    damage.do(root)
    _, found = found_in(root)
    assert damage.kinds <= {finding.kind for finding in found}, found
    for finding in found:
        assert "\n" not in finding.line


def test_a_finding_says_where_and_what_mends_it(root: Path) -> None:
    change(root / "commitlog" / f"{4096:020}", 4, b"\0\0\0\0")
    _, found = found_in(root)
    (damage,) = [finding for finding in found if finding.kind == "log-damage"]
    assert damage.file == f"commitlog/{4096:020}"
    assert (damage.offset, damage.remedy) == (0, Remedy.RESTORE)
    assert damage.line.startswith(f"commitlog/{4096:020} at 0: no whole record from 4096 to ")


def test_records_behind_a_damage_are_compared_too(root: Path) -> None:
    change(root / "commitlog" / f"{4096:020}", 4, b"\0\0\0\0")
    summary, _ = found_in(root)
    assert (summary.records, summary.damaged_at) == (MESSAGES - 1, 4096)
    assert summary.log_end == log_end(root)


@pytest.mark.parametrize(
    "name",
    [damage.name for damage in DAMAGES if not damage.repairable] + ["a record with another topic"],
)
def test_what_leads_to_a_lost_record_is_right(name: str, root: Path) -> None:
    """Once the record is restored nothing else is to be done."""
    next(damage for damage in DAMAGES + OTHER_DAMAGES if damage.name == name).do(root)
    _, found = found_in(root)
    assert found
    assert {finding.remedy for finding in found} == {Remedy.RESTORE}, found


def test_what_is_wrong_beside_a_lost_record_is_told(root: Path) -> None:
    change(root / "commitlog" / SECOND, 90, b"?")
    change(root / QUEUE, 4, b"\xff")
    change(root / "consumequeue/Topic/0" / f"{600:020}", 80, (5).to_bytes(8) + b"\0\0\0\x65")
    kinds = [finding.kind for finding in found_in(root)[1]]
    assert sorted(kinds) == ["log-damage", "unit-astray", "unit-wrong"]


def test_many_of_a_kind_are_counted(root: Path) -> None:
    for path in (root / "consumequeue/Topic/0").iterdir():
        units = bytearray(path.read_bytes())
        for at in range(19, len(units), 20):
            units[at] ^= 1
        path.write_bytes(units)
    told: list[Finding] = []
    findings = Findings(told.append, most=2)
    for number in range(5):
        findings.add("kind", "file", number, "text")
    assert (findings.count, len(told)) == (5, 2)
    _, found = found_in(root)
    assert {finding.kind for finding in found} == {"unit-code"}


def test_a_store_that_was_not_closed_is_mended_by_its_start(root: Path) -> None:
    (root / "abort").touch()
    # As after a kill: the queue has not been written.
    last = max((root / "consumequeue/Topic/0").iterdir())
    last.unlink()
    summary, found = found_in(root)
    assert not summary.clean
    assert {finding.remedy for finding in found} == {Remedy.START}


def test_a_deleted_topic_may_be_in_the_log(root: Path) -> None:
    store = open_again(root)
    put(store, *(make_message(b"gone", topic="Gone") for _ in range(3)))
    store.remove_topics(["Gone"])
    store.fsync()
    put(store, make_message(b"new", topic="Gone"))
    store.close()
    (root / "config/topics.json").write_text('{"topicConfigTable":{"Topic":{},"Gone":{}}}')
    assert found_in(root)[1] == []
    # Stock removes the queues and says nothing of it.
    (root / "deletedtopics").unlink()
    assert found_in(root)[1] == []
    shutil.rmtree(root / "consumequeue/Gone")
    (root / "config/topics.json").write_text('{"topicConfigTable":{"Topic":{}}}')
    assert found_in(root)[1] == []


def test_messages_in_front_of_the_log_are_no_damage(root: Path) -> None:
    (root / "commitlog" / f"{0:020}").unlink()
    summary, found = found_in(root)
    assert summary.log_start == 4096
    assert found == []


def test_an_expired_queue_keeps_its_last_file(root: Path) -> None:
    """It alone says where the queue goes on, and nobody has read what no group is in front of."""
    offsets = (
        '{"offsetTable":{"Topic@late":{7:0},"Topic@a":{0:7,7:20},"Topic@b":{7:30},"No@a":{3:9}}}'
    )
    (root / "config/consumerOffset.json").write_text(offsets)
    (gone,) = found_in(root)[1]
    assert (gone.kind, gone.file) == ("queue-gone", "consumequeue/Topic/7")
    assert "Topic@b goes on at 30 of queue 7" in gone.text
    files = root / "consumequeue/Topic/7"
    files.mkdir()
    assert [each.kind for each in found_in(root)[1]] == ["queue-gone"]
    # Units of messages in front of the log, as far as the groups have read.
    (root / "commitlog" / f"{0:020}").unlink()
    (files / f"{20 * 20:020}").write_bytes(struct.pack(">qiq", 100, 50, 0) * 10)
    assert found_in(root)[1] == []


def test_what_is_no_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoStoreError, match="no commitlog"):
        Store(str(tmp_path), SIZES)
    with pytest.raises(NoStoreError, match="no directory"):
        Store(str(tmp_path / "missing"), SIZES)


def test_groups_may_be_where_the_log_has_messages_that_the_queue_lacks(root: Path) -> None:
    (root / "abort").touch()
    max((root / "consumequeue/Topic/0").iterdir()).unlink()
    (root / "config/consumerOffset.json").write_text('{"offsetTable":{"Topic@group":{0:34}}}')
    assert {finding.remedy for finding in found_in(root)[1]} == {Remedy.START}


@pytest.mark.parametrize(("at", "said"), [(15, "239 of Topic/2"), (3, "16 of Topic/255")])
def test_a_wrong_place_is_one_finding(at: int, said: str, root: Path) -> None:
    path, start = record_of(root, 50)
    change(path, start + PLACE_AT + at, b"\xef" if at == 15 else b"\xff")
    summary, (finding,) = found_in(root)
    assert (finding.kind, finding.offset) == ("record-place", start)
    assert finding.remedy is Remedy.REPAIR
    position = int(path.name) + start
    assert finding.text == (
        f"the record at {position} says that it is {said}, and the unit of 16 of Topic/2 leads"
        " to it"
    )
    assert summary.mends == [(position, 2, 16)]


def test_two_wrong_places_in_a_row_are_mended(root: Path) -> None:
    for number in (50, 53):
        path, start = record_of(root, number)
        change(path, start + PLACE_AT + 15, b"\xef")
    summary, _ = found_in(root)
    assert [mend[1:] for mend in summary.mends] == [(2, 16), (2, 17)]


@pytest.mark.parametrize("queue_id", [0, 2])
def test_a_unit_takes_no_place_that_a_record_has(queue_id: int, root: Path) -> None:
    """Neither that of a record in front of the one that it leads to, nor that of one behind it."""
    path, start = record_of(root, 49)
    size = path.read_bytes()[start : start + 4]
    unit = struct.pack(">q", int(path.name) + start) + size
    change(root / f"consumequeue/Topic/{queue_id}" / f"{200:020}", 6 * 20, unit)
    change(root / "consumequeue/Topic/1" / f"{200:020}", 6 * 20, struct.pack(">q", 0))
    summary, found = found_in(root)
    assert summary.mends == []
    kinds = {finding.kind for finding in found}
    assert "unit-wrong" in kinds
    assert "record-place" not in kinds


def test_the_index_may_have_its_names_in_another_order(root: Path) -> None:
    """As stock leaves them where a clock was set back."""
    min((root / "index").iterdir()).rename(root / "index/29991231235959999")
    summary, found = found_in(root)
    assert found == []
    assert summary.index_entries > MESSAGES


def test_a_place_that_two_records_have_is_mended_by_no_repair(root: Path) -> None:
    """The queues are made of it, and the second record is in none."""
    path, start = record_of(root, 50)
    change(path, start + PLACE_AT, (1).to_bytes(4, "big"))
    shutil.rmtree(root / "consumequeue")
    open_again(root).close()
    twice = [finding for finding in found_in(root)[1] if finding.kind == "offset-twice"]
    assert [finding.remedy for finding in twice] == [Remedy.RESTORE]


def test_a_wrong_queue_offset_without_a_unit_is_one_finding(root: Path) -> None:
    path, start = record_of(root, 50)
    change(path, start + PLACE_AT + 15, b"\xef")
    change(root / "consumequeue/Topic/2" / f"{200:020}", 6 * 20, bytes(20))
    _, found = found_in(root)
    assert {finding.kind for finding in found} == {"record-place", "unit-hole"}
    assert len(found) == 2


def test_a_queue_goes_on_behind_what_the_log_lost(root: Path) -> None:
    # All units from there on, and the records in front of it.
    change(root / "commitlog" / f"{4096:020}", 0, bytes(4096))
    shutil.rmtree(root / "consumequeue/Topic/1")
    _, found = found_in(root)
    kinds = {finding.kind for finding in found if "Topic/1" in finding.line}
    assert kinds == {"unit-missing"}


def test_files_of_queues_that_all_have_one_wrong_size_are_found(root: Path) -> None:
    files = sorted(path for path in (root / "consumequeue").rglob("*") if path.is_file())
    for path in files:
        path.write_bytes(path.read_bytes()[:100])
    _, found = found_in(root)
    texts = {f"{found.file}: {found.text}" for found in found if found.kind == "file-size"}
    for path in files:
        assert f"{path.relative_to(root)}: it has 100 bytes in place of 200" in texts
    told: list[Finding] = []
    check_store(Store(str(root), Sizes(index_slots=16, index_entries=40)), told.append)
    (finding,) = [finding for finding in told if finding.kind == "queue-size"]
    assert finding.text.startswith("files of queues have 100 bytes, stock's have 6000000")


def test_one_short_file_of_a_queue_is_seen_by_the_others(root: Path) -> None:
    for path in (root / "consumequeue/Topic/1").iterdir():
        if path.name != f"{0:020}":
            path.unlink()
    short = root / "consumequeue/Topic/1" / f"{0:020}"
    short.write_bytes(short.read_bytes()[:110])
    told: list[Finding] = []
    check_store(Store(str(root), Sizes(index_slots=16, index_entries=40)), told.append)
    (finding,) = [finding for finding in told if finding.kind == "file-size"]
    assert finding.text == "it has 110 bytes in place of 200"


def test_a_table_of_topics_may_not_be_missing(root: Path) -> None:
    topics = root / "config/topics.json"
    topics.rename(topics.with_suffix(".json.bak"))
    (finding,) = found_in(root)[1]
    assert (finding.kind, finding.file) == ("table", "config/topics.json")
    assert finding.remedy is Remedy.START
    topics.with_suffix(".json.bak").unlink()
    (finding,) = found_in(root)[1]
    assert finding.remedy is Remedy.RESTORE
    # A store that had no message yet has none.
    shutil.rmtree(root / "consumequeue")
    for path in (root / "commitlog").iterdir():
        path.unlink()
    (root / "checkpoint").unlink()
    shutil.rmtree(root / "index")
    assert found_in(root)[1] == []


def test_a_missing_checkpoint_is_found(root: Path) -> None:
    (root / "checkpoint").unlink()
    (finding,) = found_in(root)[1]
    assert (finding.kind, finding.file, finding.remedy) == (
        "checkpoint", "checkpoint", Remedy.START
    )  # fmt: skip


def test_a_directory_that_is_no_queue_is_found(root: Path) -> None:
    (root / "consumequeue/Topic/notanumber").mkdir()
    (finding,) = found_in(root)[1]
    assert (finding.kind, finding.file) == ("file-name", "consumequeue/Topic/notanumber")
    assert finding.remedy is Remedy.RESTORE


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topics.json", '{"topicConfigTable":{"Topic":{"readQueueNums":[]}}}'),
        ("subscriptionGroup.json", '{"subscriptionGroupTable":['),
        ("consumerOffset.json", '{"offsetTable":{"Topic@group":{"0":"x"}}}'),
        ("consumerOffset.json", '{"offsetTable":[1]}'),
        ("delayOffset.json", '{"offsetTable":{"x":1}}'),
    ],
)
def test_a_table_that_no_start_reads_is_found(name: str, text: str, root: Path) -> None:
    (root / "config" / name).write_text(text)
    (finding,) = found_in(root)[1]
    assert (finding.kind, finding.file) == ("table", f"config/{name}")
    assert finding.remedy is Remedy.RESTORE


def test_a_topics_table_without_topics_lacks_them(root: Path) -> None:
    (root / "config/topics.json").write_text('{"topicConfigTable":null}')
    assert {finding.kind for finding in found_in(root)[1]} == {"topic-unknown"}


def test_what_no_file_of_the_log_is_is_named(root: Path) -> None:
    """A pipe is not waited for, either."""
    files = [root / "commitlog" / f"{start:020}" for start in (7, 409_600, 413_696)]
    files[0].touch()
    files[1].mkdir()
    os.mkfifo(files[2])
    _, found = found_in(root)
    assert {(finding.kind, finding.file) for finding in found} == {
        (kind, f"commitlog/{path.name}")
        for kind, path in zip(("file-name", "file-kind", "file-kind"), files, strict=True)
    }


def test_a_log_whose_only_file_has_another_name_is_told(root: Path) -> None:
    for path in sorted((root / "commitlog").iterdir())[1:]:
        path.unlink()
    (root / "commitlog" / FIRST).rename(root / "commitlog" / f"{7:020}")
    kinds = {finding.kind for finding in found_in(root)[1]}
    assert kinds == {"file-name", "checkpoint-ahead"}


@pytest.mark.parametrize(
    ("file", "kind", "remedy"),
    [
        (f"commitlog/{SECOND}", "shorter", Remedy.REPAIR),
        (f"commitlog/{SECOND}", "longer", Remedy.RESTORE),
        (QUEUE, "shorter", Remedy.REPAIR),
        (QUEUE, "longer", Remedy.REPAIR),
        (f"timerlog/{FIRST}", "shorter", Remedy.RESTORE),
        (f"timerlog/{FIRST}", "shorter, after a kill", Remedy.START),
        (f"timerlog/{FIRST}", "longer", Remedy.RESTORE),
    ],
)
def test_a_file_of_another_size_is_mended_by_what_takes_it(
    file: str, kind: str, remedy: Remedy, root: Path
) -> None:
    (root / "timerlog").mkdir()
    (root / "timerlog" / FIRST).write_bytes(bytes(1000))
    if kind.endswith("kill"):
        (root / "abort").touch()
    with (root / file).open("r+b") as changed:
        changed.truncate((root / file).stat().st_size + (7 if kind == "longer" else -7))
    sizes = attrs.evolve(SIZES, log=4096, timer_log=1000)
    found: list[Finding] = []
    check_store(Store(str(root), sizes), found.append)
    (finding,) = (each for each in found if each.kind == "file-size")
    assert finding.remedy is remedy
    is_timers = file.startswith("timerlog") and remedy is Remedy.RESTORE
    assert ("move timerlog and timerwheel away" in finding.text) is is_timers


@pytest.mark.parametrize(
    "place",
    [
        "config",
        "config/consumerOffset.json",
        "config/timercheck",
        "config/timermetrics",
        "config/topics.json.bak",
        "config/transactionMetrics",
        "deletedqueues",
        "deletedqueues/0",
        "epochFileCheckpoint",
        "timerlog",
        "timerwheel",
    ],
)
def test_what_is_no_file_or_no_directory_is_told(place: str, root: Path) -> None:
    path = root / place
    if place in ("config", "deletedqueues", "deletedqueues/0", "timerlog"):
        shutil.rmtree(path, ignore_errors=True)
        path.write_text("mine")
    else:
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    found = [(each.kind, each.file) for each in found_in(root)[1]]
    assert ("file-kind", place) in found


def test_an_epoch_file_without_anything_is_damaged(root: Path) -> None:
    """A start refuses it."""
    (root / "epochFileCheckpoint").touch()
    (finding,) = found_in(root)[1]
    assert (finding.kind, finding.remedy) == ("epochs", Remedy.RESTORE)


def test_a_retry_topic_of_pops_may_have_a_plus(root: Path) -> None:
    topic = "%RETRY%group+Topic"
    store = open_again(root)
    put(store, make_message(b"again", topic=topic))
    store.close()
    topics = '{"topicConfigTable":{"Topic":{},"%s":{}}}'
    (root / "config/topics.json").write_text(topics % topic)
    summary, found = found_in(root)
    assert (found, summary.queues) == ([], 4)
