"""Answers about a new topic wait until name servers know it, but never for long."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.broker.announcements import LIMIT, Announcements
from rocketmq_tw.testing.data_plane import DataPlane
from rocketmq_tw.testing.network import FakePeer
from rocketmq_tw.wire.command import RemotingCommand


def test_a_topic_is_under_way_until_its_registration_ended() -> None:
    announcements = Announcements(Clock())
    registered: Deferred[None] = Deferred()
    announcements.begin(["A", "B"], registered)
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
    announcements.begin(["A"], hanging)
    failing: Deferred[None] = Deferred()
    announcements.begin(["B"], failing)
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
    announcements.begin(["A"], first)
    announcements.begin(["A"], second)
    first.callback(None)
    assert announcements.under_way("A") is not None
    second.callback(None)
    assert announcements.under_way("A") is None


def test_the_first_messages_of_a_topic_are_answered_once_it_is_announced() -> None:
    plane = DataPlane()
    registered: Deferred[None] = Deferred()
    plane.announcements.begin(["Topic"], registered)
    peer = FakePeer()
    plane.handlers[310](plane.send_request(), peer)
    plane.clock.advance(0)
    assert len(plane.consume()) == 1, "stored all the same"
    assert peer.replies == []
    registered.callback(None)
    assert len(peer.replies) == 1
