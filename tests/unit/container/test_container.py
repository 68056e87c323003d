"""The brokers of a container: one that hangs while it starts keeps no other one up."""

from __future__ import annotations

import pytest
from twisted.internet.defer import maybeDeferred

from rocketmq_tw.container.broker_files import BrokerFiles
from rocketmq_tw.container.container import BrokerContainer, NoSuchBroker, NotAdded
from rocketmq_tw.container.interface import BrokerIdentity
from rocketmq_tw.container.messages import ChildReport
from tests.support.broker import fired
from tests.unit.container.test_separate import World

SERVES = ChildReport(serves="127.0.0.1:11")


def identity(name: str) -> BrokerIdentity:
    return BrokerIdentity("DefaultCluster", name, 0)


def container_of(world: World, *names: str) -> BrokerContainer:
    texts = {
        f"/{name}": f"brokerName={name}\nlistenPort={11 + 10 * number}\n"
        for number, name in enumerate(names)
    }
    files = BrokerFiles("10.0.0.1:9876", "127.0.0.1", "/home/me", read_text=texts.__getitem__)
    return BrokerContainer(files, world.apart, lambda job: maybeDeferred(job))


def test_others_come_and_go_while_one_hangs_in_its_start() -> None:
    world = World()
    container = container_of(world, "a", "b", "c")
    first = container.add("/a")
    world.processes[0].says(SERVES)
    fired(first)
    outcome: list[object] = []
    container.add("/b").addBoth(outcome.append)
    third = container.add("/c")
    world.processes[2].says(SERVES)
    fired(third)
    removed = container.remove(identity("a"))
    assert world.processes[0].input_closed
    world.processes[0].ends(status=0)
    assert fired(removed) == "/a"
    assert not outcome and container.identities == [identity("c")]


def test_one_that_hangs_in_its_start_is_removed() -> None:
    world = World()
    container = container_of(world, "a")
    hanging = container.add("/a")
    with pytest.raises(NotAdded, match="already been added"):
        fired(container.add("/a"))
    removed = container.remove(identity("a"))
    assert world.processes[0].input_closed and not removed.called
    world.clock.advance(60)
    assert world.processes[0].signals == ["KILL"]
    world.processes[0].ends(signal=9)
    assert fired(removed) is None
    with pytest.raises(NotAdded, match="removed while it started"):
        fired(hanging)
    again = container.add("/a")
    world.processes[1].says(SERVES)
    assert fired(again) == identity("a")


def test_one_that_comes_to_serve_though_it_is_being_removed() -> None:
    world = World()
    container = container_of(world, "a")
    added = container.add("/a")
    removed = container.remove(identity("a"))
    world.processes[0].says(SERVES)
    fired(added)
    world.processes[0].ends(status=0)
    fired(removed)
    assert container.identities == []
    world.clock.advance(1000)
    assert len(world.processes) == 1
    with pytest.raises(NoSuchBroker):
        fired(container.remove(identity("a")))


def test_a_container_stops_though_one_hangs_in_its_start() -> None:
    world = World()
    container = container_of(world, "a", "b")
    first = container.add("/a")
    world.processes[0].says(SERVES)
    fired(first)
    hanging = container.add("/b")
    stopped = container.stop()
    assert all(process.input_closed for process in world.processes)
    world.processes[0].ends(status=0)
    assert not stopped.called
    world.clock.advance(60)
    world.processes[1].ends(signal=9)
    fired(stopped)
    with pytest.raises(NotAdded):
        fired(hanging)
    with pytest.raises(NotAdded, match="the container stops"):
        fired(container.add("/a"))
