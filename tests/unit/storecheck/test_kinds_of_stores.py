"""Stores with everything that the product writes have no findings."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.message.batch import Batch
from rocketmq_tw.message.model import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, StoredMessage
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.store.timer.timer_files import TimerFiles
from rocketmq_tw.store.timer.unit import DEFAULT, TimerUnit
from rocketmq_tw.storecheck.check import Summary, check_store
from rocketmq_tw.storecheck.findings import Finding, Remedy
from rocketmq_tw.storecheck.layout import Store
from tests.support.damaged_stores import SIZES, change
from tests.support.raft_message_store import RaftStore
from tests.support.stores import START_MS, ManualClock, make_message, put, small_config

COMMITTED = 2 << 2


def check(root: Path) -> tuple[Summary, list[Finding]]:
    topics = root / "config/topics.json"
    if not topics.exists():
        # A broker writes it; there is none here.
        table = {path.name: {} for path in (root / "consumequeue").iterdir()}
        topics.parent.mkdir(exist_ok=True)
        topics.write_text(json.dumps({"topicConfigTable": table}))
    found: list[Finding] = []
    summary, _ = check_store(Store(str(root), SIZES), found.append)
    return summary, found


def opened(root: Path, **changes: object) -> MessageStore:
    config = small_config(store_path_root_dir=str(root), **changes)
    store = MessageStore(config, PosixFiles(), ManualClock())
    store.load()
    return store


def batch_of(count: int) -> Batch:
    properties = [
        b"UNIQ_KEY\x01%d\x02TAGS\x01b%d\x02" % (number, number) for number in range(count)
    ]
    return Batch([0] * count, [b"in a batch"] * count, properties, b"KEYS\x01all\x02")


def write_many(store: MessageStore) -> None:
    for number in range(50):
        put(store, make_message(b"x" * number, tags="tag", keys=f"k{number}", queue_id=number % 2))


def write_batches(store: MessageStore) -> None:
    for _ in range(10):
        store.append(make_message(), batch=batch_of(5))
        store.write_pending()
        store.dispatch()


def write_hosts(store: MessageStore) -> None:
    hosts = [("127.0.0.1", 1), ("2001:db8::1", 65535)]
    for born in hosts:
        for stored in hosts:
            message = make_message(tags="täg 日本", keys="schlüssel")
            message.born_host, message.store_host = born, stored
            put(store, message)


def write_transactions(store: MessageStore) -> None:
    for flag in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, COMMITTED, 0):
        put(store, *(make_message(keys="k", sys_flag=flag) for _ in range(3)))


def write_delayed(store: MessageStore) -> None:
    for level in (1, 3, 3):
        put(
            store,
            make_message(
                topic="SCHEDULE_TOPIC_XXXX", queue_id=level - 1,
                properties=b"DELAY\x01%d\x02" % level, tags="tag",
            ),
        )  # fmt: skip


def write_further(store: MessageStore) -> None:
    names = b"INNER_MULTI_DISPATCH\x01%LMQ%alice,%LMQ%bob,Other\x02"
    for number in range(12):
        put(store, make_message(queue_id=1, tags="a", properties=names if number % 2 else b""))


Write = Callable[[MessageStore], None]


@pytest.mark.parametrize(
    ("write", "changes"),
    [
        pytest.param(write_many, {}, id="many"),
        pytest.param(write_many, {"message_index_enable": False}, id="without an index"),
        pytest.param(write_many, {"enabled_append_prop_crc": True}, id="CRC of properties"),
        pytest.param(write_many, {"enable_consume_queue_ext": True}, id="extensions"),
        pytest.param(write_batches, {}, id="batches"),
        pytest.param(write_hosts, {}, id="IPv6 and other letters"),
        pytest.param(write_transactions, {}, id="transactions"),
        pytest.param(write_delayed, {}, id="delayed"),
        pytest.param(
            write_further, {"enable_multi_dispatch": True, "enable_lmq": True}, id="further queues"
        ),
    ],
)
def test_what_the_product_writes_has_no_findings(
    write: Write, changes: dict[str, object], tmp_path: Path
) -> None:
    store = opened(tmp_path, **changes)
    write(store)
    store.fsync()
    store.close()
    summary, found = check(tmp_path)
    assert found == []
    assert summary.records > 0
    # A start changes nothing of that.
    opened(tmp_path, **changes).close()
    assert check(tmp_path)[1] == []


@pytest.mark.parametrize("write", [write_many, write_batches, write_transactions])
def test_a_store_that_was_killed_needs_a_start_only(write: Write, tmp_path: Path) -> None:
    store = opened(tmp_path / "store")
    write(store)
    killed = Path(shutil.copytree(tmp_path / "store", tmp_path / "killed"))
    store.close()
    _, found = check(killed)
    assert {finding.remedy for finding in found} <= {Remedy.START}
    opened(killed).close()
    assert check(killed)[1] == []


def test_a_queue_that_begins_behind_its_start_has_no_findings(tmp_path: Path) -> None:
    copy = opened(tmp_path / "copy")
    source = opened(tmp_path / "source")
    write_many(source)
    end = source.end_offset
    first = source.queue_units("Topic", 0, 10, 1)[0].position
    # As a slave that begins with the last file of its master.
    position = first - first % 4096 + 4096
    copied = position
    copy.append_raw(position, b"".join(_log_of(source, position, end)))
    copy.write_pending()
    while copy.dispatch():
        pass
    copy.close()
    source.close()
    summary, found = check(tmp_path / "copy")
    assert (summary.log_start, found) == (copied, [])


def _log_of(store: MessageStore, position: int, end: int) -> list[bytes]:
    parts = []
    while position < end:
        parts.append(store.read_log(position, end - position))
        position += len(parts[-1])
    return parts


def test_a_lost_extra_is_found(tmp_path: Path) -> None:
    store = opened(tmp_path, enable_consume_queue_ext=True)
    write_many(store)
    store.close()
    change(tmp_path / "consumequeue_ext/Topic/1" / f"{0:020}", 40, bytes(20))
    kinds = {finding.kind for finding in check(tmp_path)[1]}
    assert kinds == {"extra", "unit-code"}


def test_a_changed_property_is_found_by_its_crc(tmp_path: Path) -> None:
    store = opened(tmp_path, enabled_append_prop_crc=True)
    (place, _) = put(store, make_message(keys="key"), make_message())
    store.close()
    path = tmp_path / "commitlog" / f"{0:020}"
    change(path, path.read_bytes().index(b"KEYS\x01key") + 5, b"?")
    (damage,) = [found for found in check(tmp_path)[1] if found.kind == "log-damage"]
    assert (damage.offset, "CRC of its properties" in damage.text) == (place, True)


@pytest.fixture
def member(tmp_path: Path) -> Path:
    raft = RaftStore(PosixFiles(), store_path_root_dir=str(tmp_path))
    raft.lead()
    for number in range(60):
        raft.store.append(make_message(b"x" * number, keys=f"k{number}", tags="a"))
    raft.settle()
    raft.store.fsync()
    raft.close()
    return tmp_path


def test_the_log_of_a_dledger_member_has_no_findings(member: Path) -> None:
    summary, found = check(member)
    assert found == []
    assert summary.records == 60
    assert len(list((member / "dledger-n0/data").iterdir())) > 1


def test_a_damaged_entry_is_found(member: Path) -> None:
    change(member / "dledger-n0/data" / f"{4096:020}", 200, b"\xff")
    found = check(member)[1]
    assert "log-damage" in {finding.kind for finding in found}
    assert {finding.file for finding in found} >= {f"dledger-n0/data/{4096:020}"}


def test_a_damaged_index_unit_of_an_entry_is_found(member: Path) -> None:
    change(member / "dledger-n0/index" / f"{0:020}", 36, b"\xff")
    (finding,) = check(member)[1]
    assert (finding.kind, finding.offset, finding.remedy) == ("entry-index", 32, Remedy.START)


def write_timers(root: Path, places: list[int], size: int) -> None:
    timer = TimerFiles(PosixFiles(), str(root), file_size=4096, precision_ms=1000)
    timer.load(
        log_position=0, since_ms=START_MS, commit_end=1 << 40, clean=True,
        note_log_position=lambda position: None,
    )  # fmt: skip
    for number, place in enumerate(places):
        due = START_MS + 1000 * (number % 7 + 1)
        timer.add(TimerUnit(-1, DEFAULT, START_MS, due, place, size, 0), START_MS)
    timer.write(timer.take_changes())
    timer.close()


def message_for_timer() -> StoredMessage:
    return make_message(topic="rmq_sys_wheel_timer")


def test_timed_messages_have_no_findings(tmp_path: Path) -> None:
    store = opened(tmp_path)
    messages = [message_for_timer() for _ in range(100)]
    places = put(store, *messages)
    store.close()
    write_timers(tmp_path, places, messages[0].store_size)
    summary, found = check(tmp_path)
    assert (summary.timer_entries, found) == (100, [])

    change(tmp_path / "timerlog" / f"{0:020}", 52 * 3 + 28, b"\0" * 7 + b"\x05")
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "consumequeue").mkdir()
    kinds = {finding.kind for finding in check(tmp_path)[1]}
    assert kinds == {"timer-astray", "unit-missing"}


def test_what_a_group_has_not_confirmed_may_be_in_no_queue(tmp_path: Path) -> None:
    store = opened(tmp_path)
    write_many(store)
    confirmed = store.end_offset
    store.dispatch_limit = confirmed
    put(store, *(make_message(tags="a", keys="k") for _ in range(3)))
    store.close()
    (tmp_path / "epochFileCheckpoint").write_text("1\n0\n1-0\n")
    change(tmp_path / "checkpoint", 32, confirmed.to_bytes(8, "big"))
    summary, found = check(tmp_path)
    assert summary.log_end > confirmed
    assert found == []
    # In front of it all must be there.
    queue = max((tmp_path / "consumequeue/Topic/0").iterdir())
    queue.unlink()
    assert "unit-missing" in {finding.kind for finding in check(tmp_path)[1]}
