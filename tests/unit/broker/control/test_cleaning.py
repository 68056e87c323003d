"""What administrators have removed: queues of topics that are gone, expired files."""

from datetime import datetime

from rocketmq_tw.config.change import change
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode
from tests.support.broker import BrokerInMemory
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
