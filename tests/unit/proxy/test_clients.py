"""Who is connected to a proxy by gRPC."""

from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy import clients as module
from rocketmq_tw.proxy.clients import ProxyClient, ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import GrpcError, GrpcStatus
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proxy import Proxy
from rocketmq_tw.runtime.threads import at_once
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.proxy import FakeCall, PlayedBrokers


class Stream:
    """A client's Telemetry stream."""

    def __init__(self) -> None:
        self.metadata = {"x-mq-language": "PYTHON"}
        self.address = "10.0.0.1:999"
        self.is_over = False
        self.sent: list[object] = []
        self.error: GrpcError | None = None
        self._ended: list[Callable[[], None]] = []

    def send(self, message: object) -> None:
        self.sent.append(message)

    def on_end(self, callback: Callable[[], None]) -> None:
        self._ended.append(callback)

    def finish(self, error: GrpcError | None = None) -> None:
        self.is_over, self.error = True, error
        for callback in self._ended:
            callback()


class Book:
    """A registry whose time passes when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.gone: list[str] = []
        self.asked: list[ProxyClient] = []
        self.clients = ProxyClients(lambda: self.now, self.hand_on, lambda: 120.0)
        self.clients.gone.add(lambda client: self.gone.append(client.client_id))

    def hand_on(
        self, client: ProxyClient, request: RemotingCommand, timeout: float
    ) -> Deferred[RemotingCommand]:
        self.asked.append(client)
        return Deferred()

    def settle(self, client_id: str, stream: Stream, group: str = "g") -> ProxyClient:
        settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
        settings.subscription.group.name = group
        return self.clients.settle(client_id, stream, settings, group, ["t"])  # type: ignore[arg-type]

    def expire(self) -> None:
        for _ in self.clients.expire():
            pass


def test_what_a_client_told_is_known_until_it_goes() -> None:
    book, stream = Book(), Stream()
    assert book.clients.get("a") is None
    client = book.settle("a", stream)
    assert book.clients.get("a") is client
    assert (client.client_type, client.group, client.language) == (
        pb.SIMPLE_CONSUMER,
        "g",
        "PYTHON",
    )
    assert client.is_consumer
    assert client.tell(pb.TelemetryCommand())
    assert len(stream.sent) == 1
    assert book.clients.remove("a") is client
    assert book.clients.remove("a") is None
    assert (book.gone, len(book.clients)) == (["a"], 0)


def test_a_stream_that_was_replaced_may_end() -> None:
    book, former, newer = Book(), Stream(), Stream()
    client = book.settle("a", former)
    book.settle("a", newer)
    former.finish()
    assert client.stream is newer
    newer.finish()
    assert not client.tell(pb.TelemetryCommand())
    assert book.clients.get("a") is client


def test_a_silent_client_is_gone_and_its_stream_ends() -> None:
    book, silent = Book(), Stream()
    book.settle("silent", silent)
    heard = book.settle("heard", Stream())
    book.now = 100
    book.clients.heard(heard)
    book.now = 121
    book.expire()
    assert book.gone == ["silent"]
    assert silent.error is not None and silent.error.status is GrpcStatus.UNAVAILABLE


def test_settings_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CLIENTS", 1)
    monkeypatch.setattr(module, "MAX_SETTINGS_BYTES", 100)
    monkeypatch.setattr(module, "MAX_ALL_SETTINGS_BYTES", 60)
    book = Book()
    book.settle("a", Stream())
    with pytest.raises(GrpcError, match="another one"):
        book.settle("b", Stream())
    with pytest.raises(GrpcError, match="no room"):
        book.settle("a", Stream(), "g" * 80)
    with pytest.raises(GrpcError, match="100 are the limit"):
        book.settle("a", Stream(), "g" * 100)
    book.clients.remove("a")
    book.settle("b", Stream(), "g" * 40)


def come(book: Book, host: str, size: int) -> int:
    """Has clients of a host come with settings of `size` bytes until one is refused; returns how
    many came."""
    for number in range(1000):
        stream = Stream()
        stream.address = f"{host}:{number + 1}"
        try:
            book.settle(f"{host}-{number}", stream, "g" * size)
        except GrpcError as error:
            assert error.status is GrpcStatus.RESOURCE_EXHAUSTED
            return number
    raise AssertionError("there is no limit")


def test_settings_of_one_host_do_not_take_the_room_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ALL_SETTINGS_BYTES", 40_000)
    book = Book()
    greedy = come(book, "10.0.0.1", 4000)
    assert greedy == 9
    # Half as much again is for others.
    assert come(book, "10.0.0.2", 4000) == 2
    assert come(book, "10.0.0.3", 4000) == 1
    for client in book.clients:
        book.clients.remove(client.client_id)
    assert come(book, "10.0.0.2", 4000) == greedy


def test_clients_of_one_host_do_not_take_the_place_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CLIENTS", 40)
    book = Book()
    assert [come(book, f"10.0.0.{host}", 1) for host in (1, 2, 3)] == [40, 10, 5]
    # One that comes again is there already.
    book.settle("10.0.0.1-0", Stream())


def test_settings_count_with_what_they_take_in_memory() -> None:
    topics = pb.Settings()
    for _ in range(1000):
        topics.subscription.subscriptions.add()
    assert topics.ByteSize() < 10_000
    assert module.settings_size(topics) > 100_000
    addresses = pb.Settings()
    addresses.access_point.MergeFromString(b"\x12\x00" * 1000)
    with pytest.raises(GrpcError, match="1000 addresses"):
        module.settings_size(addresses)


def test_requests_of_brokers_are_handed_on() -> None:
    book = Book()
    client = book.settle("a", Stream())
    client.ask(RemotingCommand.request(307), 3.0)
    assert book.asked == [client]


def test_the_name_of_a_language_takes_no_memory() -> None:
    book = Book()
    stream = Stream()
    stream.metadata = {"x-mq-language": "J" * 14_000}
    client = book.clients.settle("c1", stream, pb.Settings(), "", [])  # type: ignore[arg-type]
    assert len(client.language) <= 32


def test_how_long_a_client_may_be_silent_is_a_key() -> None:
    clock, brokers = Clock(), PlayedBrokers()
    brokers.add_topic("T", {"broker-a": 1})
    brokers.answer(RequestCode.HEART_BEAT, lambda request: request.response())
    config = ProxyConfig(channel_expired_timeout=30_000, heartbeat_syncer_topic_name="")
    proxy = Proxy(clock, config, brokers, at_once)
    proxy.start()
    settings = pb.Settings(client_type=pb.PRODUCER)
    proxy.clients.settle("client", FakeCall(), settings, "", ["T"])
    clock.pump([1] * 29)
    assert proxy.clients.get("client") is not None
    clock.pump([1] * 20)
    assert proxy.clients.get("client") is None
