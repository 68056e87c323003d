"""Clients that are stopped twice, without having begun, or while they begin."""

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.client.message import Message
from rocketmq_tw.client.producer import Producer
from rocketmq_tw.client.pull import PullConsumer
from rocketmq_tw.client.push import PushConsumer

KINDS = ["producer", "pull", "push"]


def make(world, kind, group, session):
    given = (world.client_clock, world.names_address, group)
    if kind == "producer":
        return Producer(*given, session=session)
    if kind == "pull":
        return PullConsumer(*given, session=session)
    consumer = PushConsumer(*given, lambda message: None, session=session)
    consumer.subscribe("T")
    return consumer


def is_known(world, kind, group):
    if kind == "producer":
        return bool(world.broker.clients.producers(group))
    return bool(world.members(group))


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def session(world):
    return world.session()


@pytest.fixture
def neighbour(world, kind, session):
    """Shares the session, and goes on."""
    world.run(session.routes.refresh("T"))
    client = make(world, kind, "neighbours", session)
    world.run(client.start())
    return client


def goes_on(world, kind, group="neighbours"):
    """Whether heartbeats still tell the broker of the group."""
    registry = world.broker.clients
    if kind == "producer":
        (client,) = registry.producers(group)
        registry.unregister_producer(group, client.peer)
    world.wait(31)
    return is_known(world, kind, group) and len(world.client_clock.getDelayedCalls()) > 0


def test_a_second_stop_does_nothing(world, kind, session, neighbour):
    client = make(world, kind, "twice", session)
    world.run(client.start())
    world.run(client.stop())
    world.run(client.stop())
    assert not is_known(world, kind, "twice")
    assert goes_on(world, kind)
    world.run(neighbour.stop())
    world.wait(1)
    assert world.client_clock.getDelayedCalls() == []


def test_a_stop_without_a_start_does_nothing(world, kind, session, neighbour):
    world.run(make(world, kind, "never", session).stop())
    assert goes_on(world, kind)


def test_one_whose_group_is_taken_leaves_the_other_alone_when_it_stops(world, session):
    world.run(session.routes.refresh("T"))
    first, again = (make(world, "pull", "one", session) for _ in range(2))
    world.run(first.start())
    with pytest.raises(ValueError, match="one"):
        again.start()
    world.run(again.stop())
    assert goes_on(world, "pull", "one")


def test_a_push_consumer_that_is_stopped_while_it_starts_keeps_nothing_open(world, session):
    consumer = make(world, "push", "hasty", session)
    held: Deferred[None] = Deferred()
    session.routes.refresh, refresh = lambda topic: held, session.routes.refresh
    starting = consumer.start()
    world.clock.advance(0)
    session.routes.refresh = refresh
    world.run(consumer.stop())
    held.callback(None)
    world.run(starting)
    world.wait(1)
    assert not is_known(world, "push", "hasty")
    assert world.client_clock.getDelayedCalls() == []


def test_a_producer_that_only_sends_closes_its_connections_when_it_stops(world, session):
    producer = make(world, "producer", "casual", session)
    world.run(producer.send(Message("T", b"x")))
    world.run(producer.stop())
    assert world.client_clock.getDelayedCalls() == []
    assert not world.broker.listener.connections
