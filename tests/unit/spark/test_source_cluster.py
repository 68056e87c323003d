"""What the driver asks brokers, over a client of plain values."""

from collections.abc import Callable
from typing import Any

import pytest

from rocketmq_tw.client.blocking_connection import ConnectionFailed
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.spark.cluster import SourceCluster
from rocketmq_tw.spark.options import ConnectionOptions, source_options
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import ResponseCode

QUEUES = [
    MessageQueue(topic="t", broker_name=name, queue_id=number) for name in "ab" for number in (0, 1)
]


class Client:
    """Answers with queue ids; brokers in `failing` raise."""

    def __init__(self) -> None:
        self.failing: dict[str, Callable[[], Exception]] = {}
        self.asked: list[str] = []

    def serving_broker(self, queue: MessageQueue) -> str:
        return queue.broker_name

    def max_offset(self, queue: MessageQueue) -> int:
        self.asked.append(queue.broker_name)
        if queue.broker_name in self.failing:
            raise self.failing[queue.broker_name]()
        return queue.queue_id

    def commit_offset(self, queue: MessageQueue, offset: int) -> None:
        self.max_offset(queue)

    def forget_routes(self) -> None:
        pass


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(ConnectionOptions, "client", lambda *of: made)
    return made


def answers(ask: Callable[..., Any], *args: int) -> list[Any]:
    found = []
    for queue in QUEUES:
        try:
            found.append(ask(queue, *args))
        except (ConnectionFailed, BrokerError) as error:
            found.append(type(error))
    return found


def cluster() -> SourceCluster:
    return SourceCluster(source_options({"nameServers": "a:1", "topic": "t"}, streaming=True))


def test_a_broker_that_hangs_is_asked_once_until_a_refresh(client: Client) -> None:
    client.failing["a"] = lambda: ConnectionFailed("h:1", "no answer in time")
    asking = cluster()
    assert answers(asking.latest) == [ConnectionFailed, ConnectionFailed, 0, 1]
    assert answers(asking.commit, 7) == [ConnectionFailed, ConnectionFailed, None, None]
    assert client.asked == ["a", "b", "b", "b", "b"]
    client.failing.clear()
    asking.refresh()
    assert answers(asking.latest) == [0, 1, 0, 1]


def test_a_broker_that_refuses_is_asked_for_each_queue(client: Client) -> None:
    client.failing["a"] = lambda: BrokerError("h:1", ResponseCode.SYSTEM_BUSY, "busy")
    assert answers(cluster().latest) == [BrokerError, BrokerError, 0, 1]
    assert client.asked == ["a", "a", "b", "b"]
