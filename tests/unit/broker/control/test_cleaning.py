"""What administrators have removed: queues of topics that are gone, expired files."""

from datetime import datetime

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.config.change import change
from rocketmq_tw.files.interface import DiskUsage
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode
from tests.support.broker import BrokerInMemory, ok
from tests.support.stores import queues_of


def test_queues_of_topics_that_are_gone_are_removed(plane: BrokerInMemory) -> None:
    plane.topics.update(TopicConfig(topic_name="Used"))
    plane.put("Used", b"one")
    plane.put("Gone", b"one")
    assert plane.ask(RequestCode.CLEAN_UNUSED_TOPIC).code == 0
    assert queues_of(plane.store) == {"Used": {0}}


def test_expired_files_go_at_any_hour(plane: BrokerInMemory) -> None:
    for _ in range(1500):
        plane.put("T", bytes(1000))
    plane.store.checkpoint()
    hour = datetime.fromtimestamp(plane.now_ms() / 1000 + 73 * 3600).hour
    change(plane.store_config, {"deleteWhen": f"{(hour + 12) % 24:02}"})
    plane.clock.advance(73 * 3600)
    assert plane.store.min_physical_offset == 0
    sum(plane.store.clean(plane.now_ms()))
    kept = plane.store.min_physical_offset
    assert plane.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
    assert (kept, plane.store.min_physical_offset) == (0, 1 << 20)


def test_there_is_nothing_to_clean_in_queues(plane: BrokerInMemory) -> None:
    assert plane.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == 0


FILE = 1 << 16


class LogDisk(MemoryFiles):
    """A disk of 50 files of the log, on which nothing else takes room; with `is_late` it does not
    show the room of removed ones, as where another process has them open."""

    is_late = False

    def usage(self, path: str) -> DiskUsage:
        files = 28 if self.is_late else len(self.list("/store/commitlog"))
        return DiskUsage(50 * FILE, files * FILE)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("asks", [0, 12])
def test_a_ratio_that_is_lowered_live_costs_no_file_more_than_reaches_it(
    is_late: bool, asks: int
) -> None:
    """13 of 28 files, whether somebody asks for it again and again (329) or the broker looks."""
    files = LogDisk()
    broker = BrokerInMemory(files, mapped_file_size_commit_log=FILE, delete_file_batch_max=10)
    broker.add_topic("T", read_queue_nums=1, write_queue_nums=1)
    # Not so many that the next file is made in advance.
    while broker.store.end_offset < 27.4 * FILE:
        ok(broker.send(bytes(2_000), topic="T"))
    broker.clock.advance(0.1)
    broker.store.checkpoint()
    files.is_late = is_late
    assert files.usage("/").used == 28 * FILE
    assert broker.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
    assert broker.store.min_physical_offset == 0
    with capturedLogs() as logs:
        changed = broker.ask(
            RequestCode.UPDATE_BROKER_CONFIG,
            body=b"diskMaxUsedSpaceRatio=25\ndiskSpaceCleanForciblyRatio=30",
        )
        assert changed.code == 0
        for _ in range(asks):
            assert broker.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
            broker.clock.advance(0.01)
        if asks:
            assert broker.store.min_physical_offset == 13 * FILE, "at once"
        for _ in range(55):
            broker.clock.advance(1)
    assert broker.store.min_physical_offset == 13 * FILE
    forced = [line for line in map(formatEvent, logs) if "diskSpaceCleanForciblyRatio): " in line]
    counts = [int(line.split("diskSpaceCleanForciblyRatio): ")[1].split()[0]) for line in forced]
    assert counts == [10, 3], "each removal is a warning with what it freed"
    ok(broker.send(b"goes on", topic="T"))
