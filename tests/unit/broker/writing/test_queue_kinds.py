"""Stores with queues of a kind that only stock has."""

import pytest

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.store.paths import StorePaths
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable
from tests.support.broker import BrokerInMemory, ok


def a_store() -> tuple[MemoryFiles, str]:
    """The files of a broker that stopped, and their root."""
    files = MemoryFiles()
    plane = BrokerInMemory(files)
    ok(plane.send(topic="Topic"))
    plane.stop()
    return files, StorePaths(plane.store_config).root


def write(files: MemoryFiles, path: str, data: bytes) -> None:
    files.make_dirs(path.rpartition("/")[0])
    file = files.open(path, create=True)
    file.truncate(0)
    file.pwrite(data, 0)
    file.fsync()
    file.close()


def content(files: MemoryFiles, root: str) -> dict[str, bytes]:
    return {
        name: files.read(f"{root}/consumequeue/Topic/0/{name}")
        for name in files.list(f"{root}/consumequeue/Topic/0")
    }


@pytest.mark.parametrize("attribute", [("queue.type", "BatchCQ"), ("cleanup.policy", "COMPACTION")])
def test_a_store_with_such_a_topic_is_not_opened(attribute: tuple[str, str]) -> None:
    files, root = a_store()
    before = content(files, root)
    key, value = attribute
    table = TopicConfigTable(
        topic_config_table={"Batches": TopicConfig(topic_name="Batches", attributes={key: value})}
    )
    write(files, f"{root}/config/topics.json", encode_body(table))
    with pytest.raises(StoreError, match=rf"Batches.*{key}={value}.*delete"):
        BrokerInMemory(files)
    assert content(files, root) == before
    assert not files.exists(f"{root}/abort")


def test_a_store_with_batch_queues_is_not_opened() -> None:
    files, root = a_store()
    write(files, f"{root}/batchconsumequeue/Batches/0/00000000000000000000", bytes(46))
    with pytest.raises(StoreError, match=r"Batches.*batchconsumequeue.*delete"):
        BrokerInMemory(files)


@pytest.mark.parametrize("kind", ["batchconsumequeue", "consumequeue_ext"])
def test_empty_directories_of_queues_are_in_nobodys_way(kind: str) -> None:
    files, root = a_store()
    files.make_dirs(f"{root}/{kind}/Gone/0")
    assert BrokerInMemory(files).store.max_queue_offset("Topic", 0) == 1
