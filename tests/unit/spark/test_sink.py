"""What a task sends in a request, and how it keeps a rate."""

from collections import Counter
from typing import Any

import pytest

from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.client.message import Message, SendResult, SendStatus
from rocketmq_tw.client.producer import by_key
from rocketmq_tw.spark import sink
from rocketmq_tw.spark.options import sink_options
from rocketmq_tw.spark.sink import Sender, WriteError
from rocketmq_tw.spark.waiting import Backoff
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import ResponseCode


class FakeClient:
    """Takes everything; `answers` are given first."""

    def __init__(self, *answers: SendStatus) -> None:
        self.answers = list(answers)
        self.requests: list[int] = []
        self.messages: Counter[Any] = Counter()

    def send(self, message: Message, *, queue: Any) -> SendResult:
        return self.send_batch([message], queue=queue)

    def send_batch(self, messages: list[Message], *, queue: Any) -> SendResult:
        self.requests.append(len(messages))
        self.messages[queue] += len(messages)
        status = self.answers.pop(0) if self.answers else SendStatus.SEND_OK
        return SendResult(status, "id", "offset id", queue, 0)

    def write_queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic=topic, broker_name="b", queue_id=n) for n in range(6)]

    def forget_routes(self) -> None:
        pass


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(sink, "time", made)
    monkeypatch.setattr(sink, "Backoff", lambda limit: Backoff(limit, made.monotonic, made.sleep))
    return made


def sender(monkeypatch: pytest.MonkeyPatch, client: FakeClient, **options: object) -> Sender:
    monkeypatch.setattr(sink, "worker_client", lambda *of: client)
    return Sender(sink_options({"nameServers": "127.0.0.1:9876", "topic": "t", **options}))


def send(to: Sender, count: int) -> int:
    for number in range(count):
        to.add({"body": f"m{number}"})
    return to.finish()


def test_many_messages_share_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient()
    assert send(sender(monkeypatch, client), 150) == 150
    assert client.requests == [64, 64, 22]


@pytest.mark.parametrize(("rate", "request_size"), [(5, 1), (100, 10), (10_000, 64)])
def test_a_rate_is_kept_evenly(
    monkeypatch: pytest.MonkeyPatch, time: Time, rate: int, request_size: int
) -> None:
    client = FakeClient()
    assert send(sender(monkeypatch, client, maxMessagesPerSecond=rate), 640) == 640
    assert max(client.requests) == request_size
    assert time.now == pytest.approx((640 - client.requests[-1]) / rate)


def test_a_pause_is_not_made_up_for_by_a_burst(monkeypatch: pytest.MonkeyPatch, time: Time) -> None:
    to = sender(monkeypatch, FakeClient(), maxMessagesPerSecond=5)
    time.now = 100.0
    assert send(to, 11) == 11
    assert time.now == pytest.approx(102.0)


def test_what_was_stored_on_one_broker_only_is_told_and_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = FakeClient(SendStatus.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE)
    assert send(sender(monkeypatch, client), 150) == 150
    assert client.requests == [64, 64, 22]
    assert [record.getMessage()[:59] for record in caplog.records] == [
        "messages of t are stored, but SLAVE_NOT_AVAILABLE: they are"
    ]


def test_properties_count_in_the_size_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient()
    to = sender(monkeypatch, client, sendBatchSize=1000)
    for _ in range(400):
        to.add({"body": b"x", "properties": {"p": "y" * 20_000}})
    assert to.finish() == 400
    assert max(client.requests) <= 26


def test_a_sharding_key_chooses_the_queue_that_producers_choose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = FakeClient()
    to = sender(monkeypatch, client)
    keys = [f"order-{number}" for number in range(100)]
    for key in keys:
        to.add({"body": b"x", "shardingKey": key})
    to.finish()
    chosen = [by_key(key)(client.write_queues("t"), Message("t", b"x")) for key in keys]
    assert client.messages == Counter(chosen)


def test_other_brokers_are_tried_as_often_as_the_option_says() -> None:
    to = Sender(sink_options({"nameServers": "a:1", "topic": "t", "sendRetries": 0}))
    assert to._client._send_retries == 0
    again = Sender(sink_options({"nameServers": "a:1", "topic": "t", "sendRetries": 5}))
    assert again._client._send_retries == 5


def test_what_a_broker_refuses_names_the_row_and_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refusing(FakeClient):
        def send_batch(self, messages: list[Message], *, queue: Any) -> SendResult:
            raise BrokerError("127.0.0.1:1", ResponseCode.NO_PERMISSION, "the topic is sealed")

    with pytest.raises(WriteError, match=r"2 rows up to row 1 of the task.*the topic is sealed"):
        send(sender(monkeypatch, Refusing()), 2)


def test_a_bad_row_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    to = sender(monkeypatch, FakeClient())
    to.add({"body": "good"})
    with pytest.raises(WriteError, match="row 1 of the task: body is null"):
        to.add({"body": None})
