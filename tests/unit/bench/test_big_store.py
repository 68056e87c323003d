"""The store of `tools.big` is one that a broker reads, and that agrees with itself."""

from pathlib import Path

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.store.message_store import MessageStore
from tests.support.stores import ManualClock, queues_of, read_all
from tools.big.store import LOG_FILE, Scale, make_store

SMALL = Scale(queues=12, topics=4, groups=2, log_files=3, old_files=1, messages=2)


def test_all_messages_are_there(tmp_path: Path) -> None:
    make_store(tmp_path / "store", SMALL)
    config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path / "store"), mapped_file_size_commit_log=LOG_FILE
    )
    store = MessageStore(config, PosixFiles(), ManualClock())
    report = store.load()
    assert report.clean and not report.notes and not report.records
    assert queues_of(store) == {topic: {0, 1, 2} for topic in SMALL.topic_names()}
    for topic in SMALL.topic_names():
        for queue_id in range(3):
            messages = read_all(store, topic, queue_id)
            assert [message.queue_offset for message in messages] == [0, 1]
    store.close()
