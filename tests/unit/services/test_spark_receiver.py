"""The receiver service without a network: who gets which messages, and when they are done."""

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python import usage

from rocketmq_tw.client.message import Message, ReceivedMessage
from rocketmq_tw.client.push import PushConsumer
from rocketmq_tw.services import spark_receiver
from rocketmq_tw.services.spark_receiver import Options, SparkReceiverService
from rocketmq_tw.spark.dstreams.control import encode_confirmation
from rocketmq_tw.spark.dstreams.ports import ControlPort, ReceiverFeed
from rocketmq_tw.spark.ranges import OffsetRange
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.queues import MessageQueue
from tests.unit.client.conftest import World

GIVEN = ["-n", "127.0.0.1:9876", "-g", "g", "-t", "t"]
QUEUE = MessageQueue(topic="t", broker_name="b", queue_id=0)


class Transport(StringTransport):
    aborted = False

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Changes nothing that is seen here."""

    def abortConnection(self) -> None:
        self.aborted = True


def options(*arguments: str, **environ: str) -> Options:
    made = Options(environ)
    made.parseOptions([*GIVEN, *arguments])
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(clock: Clock) -> SparkReceiverService:
    return SparkReceiverService(clock, options(RMQ_SPARK_SECRET="hush"))


def message(offset: int) -> ReceivedMessage:
    host = ("127.0.0.1", 1)
    return ReceivedMessage("t", b"%d" % offset, QUEUE, offset, 0, 1, host, 2, host, 0, 0, 0, 0, b"")


def feed(service: SparkReceiverService) -> Transport:
    transport = Transport()
    ReceiverFeed(service).makeConnection(transport)
    return transport


def offsets(transport: Transport) -> list[int]:
    data, found = transport.value(), []
    while data:
        length = int.from_bytes(data[:4], "big")
        found += [fields[3] for fields in pickle.loads(data[31 : 4 + length])]
        data = data[4 + length :]
    return found


def confirm(service: SparkReceiverService, *ranges: OffsetRange, secret: str = "hush") -> Any:
    transport = StringTransport()
    port = ControlPort(service)
    port.callLater = service.reactor.callLater  # type: ignore[method-assign]
    port.makeConnection(transport)
    port.dataReceived(encode_confirmation(ranges, secret))
    return msgspec.json.decode(transport.value())


def test_a_new_receiver_gets_all_that_is_open(service: SparkReceiverService, clock: Clock) -> None:
    done = [service._received(message(offset)) for offset in range(2)]
    first = feed(service)
    service._received(message(2))
    clock.advance(0.1)
    assert offsets(first) == [0, 1, 2]

    assert confirm(service, OffsetRange("t", "b", 0, 0, 1)) == {"confirmed": 1, "open": 2}
    assert [deferred.called for deferred in done] == [True, False]
    second = feed(service)
    assert first.aborted
    clock.advance(0.1)
    assert offsets(second) == [1, 2]


def test_a_message_that_comes_again_has_one_confirmation(service: SparkReceiverService) -> None:
    first, again = service._received(message(0)), service._received(message(0))
    assert (first.called, again.called) == (True, False)
    assert confirm(service, OffsetRange("t", "b", 0, 0, 1)) == {"confirmed": 1}
    assert again.called


def test_a_queue_that_goes_on_elsewhere_keeps_no_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    world, service = started(monkeypatch, "-m", "3")
    producer = world.producer()
    for _ in range(2):
        world.run(producer.send(Message("T", b"x")))
    world.wait(1)
    assert len(service.unconfirmed) == 2
    queues = service._consumer.queues
    world.run(service._consumer.reset_offsets(dict.fromkeys(queues, 0)))
    world.wait(1)
    everything = [OffsetRange(q.topic, q.broker_name, q.queue_id, 0, 99) for q in queues]
    assert service.unconfirmed.confirm(everything) == 2
    for _ in range(3):
        world.run(producer.send(Message("T", b"x")))
    world.wait(1)
    assert len(service.unconfirmed) == 3
    service.stopService()
    world.wait(2)


def test_a_wrong_secret_confirms_nothing(service: SparkReceiverService) -> None:
    done = service._received(message(0))
    answer = confirm(service, OffsetRange("t", "b", 0, 0, 1), secret="guess")
    assert "secret" in answer["error"]
    assert not done.called


def started(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[World, SparkReceiverService]:
    """The service of the topic T in a world of doubles."""
    world = World()
    with_session = partial(PushConsumer, session=world.session())
    monkeypatch.setattr(spark_receiver, "PushConsumer", with_session)
    service = SparkReceiverService(world.clock, options("-t", "T", *arguments))
    service.startService()
    world.run(service.started)
    return world, service


def test_a_stop_waits_a_second_for_confirmations(monkeypatch: pytest.MonkeyPatch) -> None:
    world, service = started(monkeypatch)
    world.run(world.producer().send(Message("T", b"x")))
    world.clock.advance(0)
    assert len(service.unconfirmed.records()) == 1
    stopped: list[Any] = []
    service.stopService().addCallback(stopped.append)
    world.wait(0.9)
    assert stopped == []
    world.wait(0.2)
    assert len(stopped) == 1


@pytest.mark.parametrize(
    ("given", "first"),
    [([], b"\0\0"), (["--tls"], b"\x16\x03"), (["--tls-config", "FILE"], b"\x16\x03")],
)
def test_name_servers_are_spoken_to_over_tls(
    given: list[str], first: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "tls.properties"
    path.write_text("tls.client.authServer=false\n")
    reactor = MemoryReactorClock()
    arguments = [str(path) if argument == "FILE" else argument for argument in given]
    service = SparkReceiverService(reactor, options(*arguments))
    service.startService()
    _, _, factory, _, _ = reactor.tcpClients[0]
    transport = Transport()
    factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 9876)).makeConnection(transport)
    reactor.advance(0)
    assert transport.value().startswith(first)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-i", "0.0.0.0"], "RMQ_SPARK_SECRET"),
        (["--from", "middle"], "first or last"),
        (["-m", "0"], "--max-unconfirmed 0: give a whole number of 1 or more"),
        (["-d", "x"], "--data x: give a whole number from 0 to 65535"),
        (["-c", "65536"], "--control 65536: give a whole number from 0 to 65535"),
        (["-n", "somewhere"], "--namesrv: 'somewhere' is no address: give host:port"),
        (["-t", "no topic"], "illegal character"),
        (["-g", ""], "--group is missing"),
        (["--tls-config", "/no/such"], "--tls-config: /no/such: No such file"),
    ],
)
def test_mistakes_on_the_command_line(arguments: list[str], said: str) -> None:
    with pytest.raises(usage.UsageError, match=said):
        options(*arguments)
