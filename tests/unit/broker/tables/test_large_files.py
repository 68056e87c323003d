"""A table that grew over months is read again at the next start, whatever its size."""

from __future__ import annotations

from rocketmq_tw.broker.tables.groups.table import GroupTable
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.tables.versioned import TableContext
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.wire.fastjson import MAX_VALUES
from tests.support.roles import a_master
from tests.support.state import MemoryStateFile

CONTEXT = TableContext(BrokerConfig(), a_master(), lambda: 1)
#: More values than a request may have.
MANY = MAX_VALUES + 10


def members(text: str) -> bytes:
    """The members of an object with `MANY` of them; `text` has the place of the number."""
    return ",".join([text % number for number in range(MANY)]).encode()


def test_offsets() -> None:
    data = b'{"offsetTable":{"T@G":{%b}}}' % members("%d:7")
    table = OffsetTable(BrokerConfig(), MemoryStateFile(data), lambda: 1)
    table.load()
    assert table.query("G", "T", MANY - 1) == 7


def test_groups() -> None:
    data = b'{"forbiddenTable":{"G":{%b}}}' % members('"T%d":4')
    table = GroupTable(MemoryStateFile(data), CONTEXT)
    table.load()
    assert not table.may_read("G", f"T{MANY - 1}")


def test_topics() -> None:
    attributes = members('"a%d":""')
    data = b'{"topicConfigTable":{"T":{"topicName":"T","attributes":{%b}}}}' % attributes
    table = TopicTable(MemoryStateFile(data), CONTEXT)
    table.load()
    known = table.get("T")
    assert known is not None and len(known.attributes or {}) == MANY
