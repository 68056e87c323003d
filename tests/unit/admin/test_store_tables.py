"""`rmqadmin store repair` of tables and epochs: on stores in a directory of the test."""

import json
from pathlib import Path

import pytest

from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.replication.auto_switch.epoch_file import EpochFile
from rocketmq_tw.wire.fastjson import loads
from tests.support.damaged_stores import change, log_end, open_again
from tests.support.stores import make_message, put
from tests.unit.admin.conftest import Run

OFFSETS = "config/consumerOffset.json"
EPOCHS = "epochFileCheckpoint"


def content_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def changed(root: Path, before: dict[str, bytes]) -> set[str]:
    after = content_of(root)
    return {name for name in before | after if before.get(name) != after.get(name)}


TABLE = """{"dataVersion":{"counter":7},"offsetTable":{"Topic@a":{0:35,1:33},"Topic@b":{2:1},
"Topic@c":{2:99}},"resetOffsetTable":{}}"""


@pytest.mark.parametrize("key", ["0", '"0"'])
def test_a_group_goes_on_where_its_queue_ends(key: str, root: Path, run: Run) -> None:
    """Nothing else of the table changes, nor of the store."""
    (root / OFFSETS).write_text(TABLE.replace("0:35", f"{key}:35"))
    before = content_of(root)
    planned = run("repair", root, "--yes", "--dry-run")
    assert "2 offsets would become the ends of their queues" in planned.out
    assert changed(root, before) == set()
    assert "1 x repair" not in run("check", root).out
    assert "2 x repair: `rmqadmin store repair` mends it" in run("check", root).out

    outcome = run("repair", root, "--yes")
    assert outcome.status == 0, outcome
    assert f"{OFFSETS}: Topic@a 0 is at 34, not 35" in outcome.out
    assert changed(root, before) == {OFFSETS, f"{OFFSETS}.bak"}
    assert (root / f"{OFFSETS}.bak").read_bytes() == before[OFFSETS]
    table = loads((root / OFFSETS).read_bytes())
    assert {key: list(queues.values()) for key, queues in table["offsetTable"].items()} == {
        "Topic@a": [34, 33],
        "Topic@b": [1],
        "Topic@c": [33],
    }
    assert (table["dataVersion"], table["resetOffsetTable"]) == ({"counter": 7}, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "it cannot be read: it is no such table in JSON: Expected `object`, got `array`"),
        ('{"offsetTable":[', "it cannot be read: it is no such table in JSON: "),
    ],
)
def test_a_damaged_table_is_told_in_plain_words(text: str, said: str, root: Path, run: Run) -> None:
    (root / OFFSETS).write_text(text)
    (root / f"{OFFSETS}.bak").unlink(missing_ok=True)
    outcome = run("check", root)
    assert said in outcome.out
    assert "ConsumerOffsetTable" not in outcome.out


def test_a_queue_that_stands_twice_in_a_table_is_mended_at_once(root: Path, run: Run) -> None:
    (root / OFFSETS).write_text('{"offsetTable":{"Topic@a":{"0":99,0:98}}}')
    outcome = run("repair", root, "--yes")
    assert outcome.status == 0, outcome
    assert loads((root / OFFSETS).read_bytes())["offsetTable"] == {"Topic@a": {"0": 34, 0: 34}}


def test_a_copy_gets_its_tables_mended(root: Path, tmp_path: Path, run: Run) -> None:
    (root / OFFSETS).write_text('{"offsetTable":{"Topic@a":{0:35}}}')
    before = content_of(root)
    copy = tmp_path / "copy"
    assert run("repair", root, "--to", copy).status == 0
    assert changed(root, before) == set()
    assert changed(copy, before) == {OFFSETS, f"{OFFSETS}.bak", "lock"}
    assert run("check", copy).status == 0


def test_a_cut_takes_groups_and_epochs_back(root: Path, run: Run) -> None:
    """They may have been further than what is left."""
    (root / OFFSETS).write_text('{"offsetTable":{"Topic@a":{0:34,1:3}}}')
    (root / EPOCHS).write_text(f"3\n0\n1-0\n2-300\n3-{log_end(root) - 300}\n")
    change(root / "commitlog" / f"{4096:020}", 4, b"\0\0\0\0")
    assert run("repair", root, "--yes").status == 1
    planned = run("repair", root, "--cut", "--dry-run").out
    assert (
        "epochs behind the end of what is left would go, and offsets become the ends of queues"
        in planned
    )
    outcome = run("repair", root, "--yes", "--cut")
    assert outcome.status == 0, outcome
    store = open_again(root)
    end = store.max_queue_offset("Topic", 0)
    store.close()
    assert 0 < end < 34
    assert loads((root / OFFSETS).read_bytes())["offsetTable"] == {"Topic@a": {0: end, 1: 3}}
    assert (root / EPOCHS).read_text().splitlines()[2:] == ["1-0", "2-300"]


def test_delays_go_on_where_their_queue_ends(root: Path, run: Run) -> None:
    store = open_again(root)
    put(store, *(make_message(b"later", topic="SCHEDULE_TOPIC_XXXX", queue_id=1) for _ in range(3)))
    store.close()
    delays = root / "config/delayOffset.json"
    delays.write_text('{"offsetTable":{1:0,2:8}}')
    outcome = run("repair", root, "--yes")
    assert "config/delayOffset.json: 2 is at 3, not 8" in outcome.out, outcome
    assert loads(delays.read_bytes())["offsetTable"] == {1: 0, 2: 3}


def test_groups_of_light_queues_go_on_where_these_end(root: Path, run: Run) -> None:
    store = open_again(root)
    put(store, *(make_message(b"light", topic="%LMQ%light") for _ in range(3)))
    store.close()
    offsets = root / "config/lmqConsumerOffset.json"
    offsets.write_text('{"lmqOffsetTable":{"%LMQ%light@a":4,"%LMQ%light@b":3},"offsetTable":{}}')
    outcome = run("repair", root, "--yes")
    assert outcome.status == 0, outcome
    assert "config/lmqConsumerOffset.json: %LMQ%light@a is at 3, not 4" in outcome.out
    table = loads(offsets.read_bytes())["lmqOffsetTable"]
    assert table == {"%LMQ%light@a": 3, "%LMQ%light@b": 3}


def test_a_group_that_lags_behind_the_beginning_of_its_queue_is_right(root: Path, run: Run) -> None:
    """Its messages have expired before it read them: the broker tells it where to go on."""
    (root / "commitlog" / f"{0:020}").unlink()
    (root / "consumequeue/Topic/0" / f"{0:020}").unlink()
    (root / OFFSETS).write_text('{"offsetTable":{"Topic@a":{0:3}}}')
    assert run("check", root).out.splitlines()[-1] == "nothing is wrong"


def test_epochs_that_are_all_behind_the_end_become_those_of_the_copy(root: Path, run: Run) -> None:
    (root / EPOCHS).write_text("1\n0\n5-999999\n")
    (root / f"{EPOCHS}.bak").write_text("2\n0\n1-0\n4-999000\n")
    outcome = run("repair", root, "--yes")
    assert outcome.status == 0, outcome
    assert "it has those of its .bak" in outcome.out
    assert (root / EPOCHS).read_text().splitlines()[2:] == ["1-0"]
    assert (root / f"{EPOCHS}.bak").read_text() == "1\n0\n5-999999\n"


def test_an_epoch_file_that_is_too_long_is_said_in_a_line(root: Path, run: Run) -> None:
    epochs = "".join(f"{number}-{number * 10}\n" for number in range(100_000))
    (root / EPOCHS).write_text(f"100000\n0\n{epochs}")
    outcome = run("repair", root, "--yes")
    assert outcome.status == 1, outcome
    assert f"{EPOCHS}: it is left as it is: the epoch file is damaged" in outcome.out


def test_epochs_behind_the_end_of_the_log_go(root: Path, run: Run) -> None:
    end = log_end(root)
    (root / EPOCHS).write_text(f"4\n0\n1-0\n2-4096\n3-{end}\n5-{end + 1}\n")
    before = content_of(root)
    planned = run("repair", root, "--dry-run")
    assert f"epochs that start behind the log's end, {end}, would go" in planned.out
    outcome = run("repair", root, "--yes")
    assert outcome.status == 0, outcome
    assert f"that started behind the log's end, {end}: 5 from {end + 1}" in outcome.out
    assert changed(root, before) == {EPOCHS, f"{EPOCHS}.bak"}
    table = EpochFile(PosixFiles(), str(root / EPOCHS)).load()
    assert [tuple(entry) for entry in table.entries] == [(1, 0), (2, 4096), (3, end)]


@pytest.mark.parametrize("damage", ["3\n17\n1-0\n2-4096\n3-5000\n", "", "2\n0\n2-0\n1-7\n"])
def test_damaged_epochs_are_those_of_their_copy(damage: str, root: Path, run: Run) -> None:
    (root / EPOCHS).write_text(damage)
    copy = root / f"{EPOCHS}.bak"
    copy.write_text("no epochs")
    (finding,) = json.loads(run("check", root, "--output", "json").out)["findings"]
    assert (finding["kind"], finding["remedy"]) == ("epochs", "restore")
    assert "a repair mends none of it" in run("repair", root, "--yes").out
    copy.write_text("2\n0\n1-0\n2-4096\n")
    before = content_of(root)
    outcome = run("repair", root, "--yes")
    assert outcome.status == 0, outcome
    assert f"{EPOCHS}: it is restored from its .bak" in outcome.out
    assert changed(root, before) == {EPOCHS}
    assert (root / EPOCHS).read_bytes() == copy.read_bytes()


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json", "subscriptionGroup.json"])
def test_a_damaged_table_is_that_of_its_copy(name: str, root: Path, run: Run) -> None:
    table = root / "config" / name
    sound = table.read_text() if table.exists() else '{"subscriptionGroupTable":{}}'
    copy = root / "config" / f"{name}.bak"
    table.write_text('{"offsetTable":')
    copy.write_text("[")
    told = json.loads(run("check", root, "--output", "json").out)["findings"]
    assert {each["remedy"] for each in told if each["kind"] == "table"} == {"restore"}
    copy.write_text(sound)
    before = content_of(root)
    assert run("repair", root, "--yes").status == 0
    assert changed(root, before) == {f"config/{name}"}
    assert table.read_text() == copy.read_text()


def test_a_repair_in_place_writes_no_table_of_another_place(
    root: Path, tmp_path: Path, run: Run
) -> None:
    shared = tmp_path / "shared.json"
    shared.write_text('{"offsetTable":{"Topic@a":{0:35}}}')
    (root / OFFSETS).unlink()
    (root / OFFSETS).symlink_to(shared)
    outcome = run("repair", root, "--yes")
    assert outcome.status == 2
    assert "is a link to" in outcome.err
    assert shared.read_text() == '{"offsetTable":{"Topic@a":{0:35}}}'


def test_what_a_start_mends_is_left_to_it(root: Path, run: Run) -> None:
    """Timer files, for one."""
    (root / OFFSETS).write_text('{"offsetTable":{"Topic@a":{0:35}}}')
    (root / "config/timercheck").write_bytes(b"short")
    outcome = run("repair", root, "--yes")
    assert outcome.status == 1
    assert outcome.out.endswith("the broker makes what is left right at its next start\n")
