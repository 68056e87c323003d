"""Answers about a new topic wait until name servers know it, but never for long."""

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.tables.topics.announcements import ANNOUNCEMENT_SECONDS, Announcements
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import SendMessageResponseHeader
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer, MemoryNetwork

NAMES = "10.0.0.1:9876"


def test_a_topic_is_under_way_until_its_registration_ended() -> None:
    announcements = Announcements(Clock())
    registered: Deferred[None] = Deferred()
    announcements.begin(["A", "B"], succeed(None), lambda: registered)
    answer = RemotingCommand(0)
    held = announcements.hold(answer, "A")
    assert isinstance(held, Deferred) and not held.called
    registered.callback(None)
    assert held.result is answer
    assert announcements.hold(answer, "A") is answer
    assert announcements.hold(answer, "other") is answer


def test_a_registration_that_fails_or_hangs_holds_nobody_up() -> None:
    clock = Clock()
    announcements = Announcements(clock)
    hanging: Deferred[None] = Deferred()
    announcements.begin(["A"], succeed(None), lambda: hanging)
    failing: Deferred[None] = Deferred()
    announcements.begin(["B"], succeed(None), lambda: failing)
    failing.errback(OSError("no name server"))
    assert announcements.under_way("B") is None
    clock.advance(ANNOUNCEMENT_SECONDS)
    assert announcements.under_way("A") is None
    hanging.callback(None)
    assert not clock.getDelayedCalls()


def test_a_topic_changed_again_is_announced_by_the_newer_registration() -> None:
    announcements = Announcements(Clock())
    first: Deferred[None] = Deferred()
    second: Deferred[None] = Deferred()
    announcements.begin(["A"], succeed(None), lambda: first)
    announcements.begin(["A"], succeed(None), lambda: second)
    first.callback(None)
    assert announcements.under_way("A") is not None
    second.callback(None)
    assert announcements.under_way("A") is None


class World:
    """A broker in memory, and a name server whose answers wait in `asked`."""

    def __init__(self) -> None:
        self.asked: list[tuple[RemotingCommand, Deferred[RemotingCommand]]] = []
        self.network = MemoryNetwork(MemoryReactorClock())
        self.network.serve(NAMES, {RequestCode.REGISTER_BROKER: self._register})
        self.broker = BrokerInMemory(
            clock=self.network.clock, network=self.network, broker={"namesrv_addr": NAMES}
        )
        self.network.settle()
        self.asked.clear()

    def answer(self) -> None:
        """The name server answers the one registration that waits."""
        ((request, registered),) = self.asked
        registered.callback(request.response())
        self.network.settle()

    def _register(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        self.asked.append((request, Deferred()))
        return self.asked[-1][1]


def test_the_first_messages_of_a_topic_are_answered_once_it_is_announced() -> None:
    world, peer = World(), FakePeer()
    world.broker.handlers[310](world.broker.send_request(), peer)
    world.network.settle()
    assert len(world.broker.consume()) == 1, "stored all the same"
    assert peer.replies == []
    world.answer()
    assert len(peer.replies) == 1


def test_a_consumer_is_answered_once_its_retry_topic_is_announced() -> None:
    world, peer = World(), FakePeer()
    held = world.broker.heartbeat("c1", peer, group="G")
    world.network.settle()
    assert isinstance(held, Deferred) and not held.called
    assert world.broker.clients.consumer_group("G") is not None, "registered all the same"
    world.answer()
    assert held.result.code == ResponseCode.SUCCESS
    assert isinstance(world.broker.heartbeat("c1", peer, group="G"), RemotingCommand)


def test_until_a_topic_is_kept_nobody_is_told_however_long_that_takes() -> None:
    clock = Clock()
    announcements = Announcements(clock)
    kept: Deferred[None] = Deferred()
    registrations = []

    def register() -> Deferred[None]:
        registrations.append(clock.seconds())
        return succeed(None)

    announcements.begin(["A"], kept, register)
    held = announcements.hold(RemotingCommand(0), "A")
    clock.advance(10 * ANNOUNCEMENT_SECONDS)
    assert isinstance(held, Deferred) and not held.called
    assert not registrations
    kept.callback(None)
    assert held.called
    assert registrations == [10 * ANNOUNCEMENT_SECONDS]


def test_the_answers_of_a_topic_that_cannot_be_kept_become_refusals() -> None:
    announcements = Announcements(Clock())
    kept: Deferred[None] = Deferred()
    announcements.begin(["A"], kept, lambda: succeed(None))
    request = RemotingCommand.request(310)
    stored = SendMessageResponseHeader(msg_id="1", queue_id=0, queue_offset=0)
    held = [announcements.hold(request.response(header=stored), "A") for _ in range(2)]
    kept.addErrback(lambda _: None)
    kept.errback(RequestError(ResponseCode.SYSTEM_ERROR, "no room"))
    for answer in held:
        assert isinstance(answer, Deferred)
        assert (answer.result.code, answer.result.remark) == (ResponseCode.SYSTEM_ERROR, "no room")
        assert answer.result.opaque == request.opaque
        assert answer.result.is_response
        assert not answer.result.ext_fields
    assert announcements.under_way("A") is None
