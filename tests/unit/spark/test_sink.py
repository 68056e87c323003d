"""What a task sends in a request, and how it keeps a rate."""

from typing import Any

import pytest

from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.client.message import Message, SendResult, SendStatus
from rocketmq_tw.spark import sink
from rocketmq_tw.spark.options import sink_options
from rocketmq_tw.spark.sink import Sender, WriteError
from rocketmq_tw.spark.waiting import Backoff
from rocketmq_tw.wire.codes import ResponseCode


class FakeClient:
    """Takes everything; `answers` are given first."""

    def __init__(self, *answers: SendStatus) -> None:
        self.answers = list(answers)
        self.requests: list[int] = []

    def send(self, message: Message, *, queue: Any) -> SendResult:
        return self.send_batch([message], queue=queue)

    def send_batch(self, messages: list[Message], *, queue: Any) -> SendResult:
        self.requests.append(len(messages))
        status = self.answers.pop(0) if self.answers else SendStatus.SEND_OK
        return SendResult(status, "id", "offset id", queue, 0)

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


def test_what_was_stored_on_one_broker_only_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient(SendStatus.FLUSH_SLAVE_TIMEOUT, SendStatus.SLAVE_NOT_AVAILABLE)
    assert send(sender(monkeypatch, client), 3) == 3
    assert client.requests == [3, 3, 3]


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
