"""Answers about a new topic wait until name servers know it, but never for long."""

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.tables.announcements import LIMIT, Announcements
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import SendMessageResponseHeader
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer, MemoryNetwork


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
    clock.advance(LIMIT)
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


def test_the_first_messages_of_a_topic_are_answered_once_it_is_announced() -> None:
    asked: list[tuple[RemotingCommand, Deferred[RemotingCommand]]] = []

    def register(request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        asked.append((request, Deferred()))
        return asked[-1][1]

    clock = MemoryReactorClock()
    network = MemoryNetwork(clock)
    network.serve("10.0.0.1:9876", {RequestCode.REGISTER_BROKER: register})
    broker = BrokerInMemory(clock=clock, network=network, broker={"namesrv_addr": "10.0.0.1:9876"})
    network.settle()
    asked.clear()
    peer = FakePeer()
    broker.handlers[310](broker.send_request(), peer)
    clock.advance(0)
    assert len(broker.consume()) == 1, "stored all the same"
    assert peer.replies == []
    ((request, registered),) = asked
    registered.callback(request.response())
    network.settle()
    assert len(peer.replies) == 1


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
    clock.advance(10 * LIMIT)
    assert isinstance(held, Deferred) and not held.called
    assert not registrations
    kept.callback(None)
    assert held.called
    assert registrations == [10 * LIMIT]


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
