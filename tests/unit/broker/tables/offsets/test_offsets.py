from collections import deque
from itertools import pairwise

import pytest

from rocketmq_tw.broker.tables.offsets import table as offsets_module
from rocketmq_tw.broker.tables.offsets.reconciling import OffsetReconciling
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.wire.bodies.base import DataVersion
from rocketmq_tw.wire.bodies.queues import ConsumerOffsetTable
from rocketmq_tw.wire.errors import RequestError
from tests.support.state import MemoryStateFile

#: The layout of stock: bare numeric keys, tabs.
STOCK_FILE = b"""{
\t"dataVersion":{
\t\t"counter":1,
\t\t"stateVersion":0,
\t\t"timestamp":1700000000000
\t},
\t"offsetTable":{
\t\t"T@G":{0:12,1:7
\t\t}
\t}
}"""

MANY = 3_000


def make_table(file: MemoryStateFile | None = None) -> OffsetTable:
    config = BrokerConfig(consumer_offset_update_version_step=2)
    return OffsetTable(config, file or MemoryStateFile(), lambda: 1_000)


def flush(table: OffsetTable) -> bool:
    encode = table.pending_write()
    if encode is None:
        return False
    table.write(encode())
    return True


def test_what_was_never_committed_is_not_zero() -> None:
    assert make_table().query("G", "T", 0) == -1


def test_offsets_survive_a_restart() -> None:
    file = MemoryStateFile()
    table = make_table(file)
    table.commit("G", "T", 3, 12)
    assert flush(table)
    assert not flush(table)
    assert file.content is not None
    assert b'"T@G":{3:12}' in file.content
    again = make_table(file)
    again.load()
    assert again.query("G", "T", 3) == 12
    assert again.query("G", "T", 0) == -1


def test_a_failed_write_is_due_again() -> None:
    table = make_table()
    table.commit("G", "T", 0, 1)
    table.pending_write()
    assert table.pending_write() is None
    table.write_soon()
    assert table.pending_write() is not None


def test_the_file_of_stock_is_read() -> None:
    table = make_table(MemoryStateFile(STOCK_FILE))
    table.load()
    assert dict(table.of("G", "T")) == {0: 12, 1: 7}
    assert table.data_version.counter == 1


def test_the_version_grows_with_every_so_many_commits() -> None:
    table = make_table()
    for offset in range(5):
        table.commit("G", "T", 0, offset)
    assert table.data_version.counter == 2


def test_topics_and_groups_are_found() -> None:
    table = make_table()
    table.commit("G1", "T1", 0, 1)
    table.commit("G1", "%RETRY%G1", 0, 1)
    table.commit("G2", "T1", 0, 1)
    assert table.topics_of("G1") == {"T1", "%RETRY%G1"}
    assert table.groups_of("T1") == {"G1", "G2"}
    deque(table.remove_topic("T1"))
    assert table.groups_of("T1") == set()
    deque(table.remove_group("G1"))
    assert table.topics_of("G1") == table.topics_of("G2") == set()


@pytest.mark.parametrize("of_topic", [False, True])
def test_what_is_removed_is_unseen_at_once_and_freed_bit_by_bit(of_topic: bool) -> None:
    file = MemoryStateFile()
    table = make_table(file)

    def pair(number: int) -> tuple[str, str]:
        return (f"G{number}", "T") if of_topic else ("G", f"T{number}")

    for number in range(MANY):
        table.commit(*pair(number), 0, 7)
        table.pulled.note(*pair(number), 0, 9)
    table.reset(*pair(8), 0, 3)
    table.commit("Other", "Else", 0, 5)
    flush(table)
    steps = table.remove_topic("T") if of_topic else table.remove_group("G")
    assert len(table._offsets) > MANY - 1_000, "nearly all are still there"
    assert table.groups_of("T") == table.topics_of("G") == set()
    for number in (0, 8, MANY - 1):
        group, topic = pair(number)
        assert table.query(group, topic, 0) == -1 and not table.of(group, topic)
        assert not table.has_reset(group, topic, 0)
        assert table.groups_of(topic) == table.topics_of(group) == set()
    # One is made anew before it is freed.
    group, topic = pair(MANY - 2)
    table.commit(group, topic, 1, 2)
    assert flush(table) and file.content is not None
    again = make_table(file)
    again.load()
    assert again._offsets.keys() == {f"{topic}@{group}", "Else@Other"}
    sizes = [len(table._offsets)]
    for _ in steps:
        sizes.append(len(table._offsets))
    assert max(before - after for before, after in pairwise(sizes)) <= 500
    assert dict(table.of(group, topic)) == {1: 2}
    assert table._offsets.keys() == {f"{topic}@{group}", "Else@Other"}
    assert table.groups_of(topic) == {group} and table.topics_of(group) == {topic}
    assert not table.pulled.all() and not table._removed


def followed(table: OffsetTable, version: DataVersion | None, **pairs: dict[int, int]) -> None:
    """The table's master has these groups' offsets in `T`, and was not asked before."""
    offsets = {f"T@{group}": queues for group, queues in pairs.items()}
    masters = ConsumerOffsetTable(offset_table=offsets, data_version=version)
    for _ in OffsetReconciling(table, lambda: 1_000).follow(masters, ConsumerOffsetTable()):
        pass


def copied(counter: int = 3) -> OffsetTable:
    """What a slave has that was down since."""
    table = make_table()
    followed(table, DataVersion(timestamp=7, counter=counter), A={0: 10, 1: 11}, B={0: 20})
    for group in "AB":
        assert table.query(group, "T", 0) > 0
    return table


def test_what_the_master_lacks_goes() -> None:
    table, version = copied(), DataVersion(timestamp=9, counter=4)
    followed(table, version, A={0: 1})
    assert [table.query(*pair) for pair in (("A", "T", 0), ("A", "T", 1), ("B", "T", 0))] == [
        1,
        -1,
        -1,
    ]
    assert table.data_version == version and table.groups_of("T") == {"A"}


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(None, id="4.9"),
        pytest.param(DataVersion(timestamp=9, counter=0), id="lost, or never filled"),
        pytest.param(DataVersion(timestamp=7, counter=3), id="written before it was killed"),
    ],
)
def test_an_older_table_removes_nothing(version: DataVersion | None) -> None:
    """A master that was killed, whose file is lost, or that was elected before it had copied any
    offsets: its slaves have the only ones. They stay, also after a start of the slave."""
    table = copied()
    for _ in range(2):
        followed(table, version, A={0: 1})
        assert table.query("A", "T", 0) == 1
        assert table.query("A", "T", 1) == 11
        assert table.query("B", "T", 0) == 20
    assert table.data_version.counter == 3


def test_an_empty_table_of_the_same_master_is_one() -> None:
    table = copied()
    followed(table, DataVersion(timestamp=9, counter=4))
    assert table.topics_of("A") == table.topics_of("B") == set()


def test_what_is_removed_is_a_change_that_slaves_see() -> None:
    table = copied()
    for _ in table.remove_topic("T"):
        pass
    assert table.data_version.counter == 4
    for _ in table.remove_topic("U"):
        pass
    assert table.data_version.counter == 4, "nothing was there"


def test_a_clone_does_not_follow_its_source() -> None:
    table = make_table()
    table.commit("G1", "T", 0, 5)
    table.clone("G1", "G2", "T")
    table.commit("G1", "T", 0, 9)
    assert table.query("G2", "T", 0) == 5


def test_a_reset_holds_until_a_pull_took_it() -> None:
    table = make_table()
    table.commit("G", "T", 0, 50)
    table.reset("G", "T", 0, 10)
    assert table.has_reset("G", "T", 0)
    assert table.query("G", "T", 0) == 10
    assert table.take_reset("G", "T", 0) == 10
    assert not table.has_reset("G", "T", 0)
    assert table.take_reset("G", "T", 0) is None
    assert table.query("G", "T", 0) == 10


def test_a_reset_holds_though_a_removed_pair_is_not_freed_yet() -> None:
    table = make_table()
    table.commit("G", "T", 0, 50)
    steps = table.remove_group("G")
    table.reset("G", "T", 0, 10)
    deque(steps)
    assert table.has_reset("G", "T", 0)
    assert table.take_reset("G", "T", 0) == table.query("G", "T", 0) == 10


def test_pairs_of_topic_and_group_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "MAX_PAIRS", 1)
    table = make_table()
    table.commit("G", "T", 0, 1)
    with pytest.raises(RequestError, match="1 pairs"):
        table.commit("G", "U", 0, 1)
    table.commit("G", "T", 1, 5)
    assert table.query("G", "T", 1) == 5
