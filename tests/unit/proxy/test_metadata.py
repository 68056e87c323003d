"""The configurations of topics and groups that a proxy remembers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import ConnectError
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.route import QueueData, TopicRouteData
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand


class Brokers:
    """Two brokers that have `Topic` and answer as `answer` says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.told = True
        self.answer: Callable[[str, RemotingCommand], Deferred[RemotingCommand]] = self.known

    def route(self, topic: str) -> Deferred[TopicRouteData | None]:
        names = ("a", "b") if topic == "Topic" and self.told else ()
        queues = [QueueData(broker_name=name) for name in names]
        return succeed(TopicRouteData(queue_datas=queues) if names else None)

    def names(self) -> list[str]:
        return ["a", "b", "c", "d", "e"] if self.told else []

    def are_told(self) -> bool:
        return self.told

    def ask(self, name: str, request: RemotingCommand, timeout: float) -> Deferred[RemotingCommand]:
        self.asked.append((name, request.code))
        return self.answer(name, request)

    def known(self, name: str, request: RemotingCommand) -> Deferred[RemotingCommand]:
        if request.code == RequestCode.GET_TOPIC_CONFIG:
            config = TopicConfig(topic_name="Topic", attributes={"message.type": "FIFO"})
            return succeed(request.response(body=encode_body(config)))
        group = SubscriptionGroupConfig(group_name="G", consume_message_orderly=True)
        return succeed(request.response(body=encode_body(group)))

    def unknown(self, name: str, request: RemotingCommand) -> Deferred[RemotingCommand]:
        return succeed(request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST))

    def hanging(self, name: str, request: RemotingCommand) -> Deferred[RemotingCommand]:
        return Deferred()

    def unreachable(self, name: str, request: RemotingCommand) -> Deferred[RemotingCommand]:
        return fail(ConnectError(name, "refused"))


class World:
    def __init__(self, **config: Any) -> None:
        self.clock = Clock()
        self.brokers = Brokers()
        self.metadata = Metadata(self.clock, self.brokers, ProxyConfig(**config))

    def group(self, name: str = "G") -> SubscriptionGroupConfig | None:
        found: list[SubscriptionGroupConfig | None] = []
        self.asked_for(name).addCallback(found.append)
        return found[0]

    def asked_for(self, name: str) -> Deferred[SubscriptionGroupConfig | None]:
        return Deferred.fromCoroutine(self.metadata.group(name, ["Topic"]))

    def topic(self, name: str = "Topic") -> TopicConfig | None:
        found: list[TopicConfig | None] = []
        self.metadata.topic(name).addCallback(found.append)
        return found[0]


def test_a_topic_is_asked_for_once() -> None:
    world = World()
    for _ in range(3):
        topic = world.topic()
        assert topic is not None and topic.attributes == {"message.type": "FIFO"}
    assert len(world.brokers.asked) == 1


def test_a_topic_is_known_until_it_has_to_be_asked_for_again() -> None:
    world = World(topic_config_cache_refresh_seconds=20)
    assert world.metadata.known_topic("Topic") is None
    topic = world.topic()
    world.clock.advance(19)
    assert topic is not None and world.metadata.known_topic("Topic") is topic
    world.clock.advance(1)
    assert world.metadata.known_topic("Topic") is None
    assert len(world.brokers.asked) == 1


def test_a_topic_without_a_route_is_none() -> None:
    world = World()
    assert world.topic("Other") is None
    assert world.brokers.asked == []


def test_another_broker_is_asked_where_one_cannot_be_reached() -> None:
    world = World()
    tried: list[str] = []

    def one_is_down(name: str, request: RemotingCommand) -> Deferred[RemotingCommand]:
        tried.append(name)
        if len(tried) == 1:
            return world.brokers.unreachable(name, request)
        return world.brokers.known(name, request)

    world.brokers.answer = one_is_down
    group = world.group()
    assert group is not None and group.consume_message_orderly
    assert sorted(tried) == ["a", "b"]


def test_another_broker_is_asked_where_one_does_not_have_it() -> None:
    world = World()
    tried: list[str] = []

    def one_has_it(name: str, request: RemotingCommand) -> Deferred[RemotingCommand]:
        tried.append(name)
        return (world.brokers.known if len(tried) > 1 else world.brokers.unknown)(name, request)

    world.brokers.answer = one_has_it
    assert world.group() is not None
    assert sorted(tried) == ["a", "b"]


def one_hangs(world: World) -> None:
    """Broker `a` answers nothing from now on, `b` and others do."""
    brokers = world.brokers
    brokers.answer = lambda name, request: (brokers.hanging if name == "a" else brokers.known)(
        name, request
    )


def test_a_topic_is_known_though_one_of_its_brokers_hangs() -> None:
    """In whatever order they are asked."""
    for _ in range(10):
        world = World()
        one_hangs(world)
        found: list[TopicConfig | None] = []
        world.metadata.topic("Topic").addCallback(found.append)
        world.clock.pump([0.25] * 3)
        assert found[0] is not None and found[0].attributes == {"message.type": "FIFO"}


def test_a_broker_that_hangs_is_asked_last_for_the_next_topics() -> None:
    world = World(topic_config_cache_refresh_seconds=1)
    one_hangs(world)
    while ("a", RequestCode.GET_TOPIC_CONFIG) not in world.brokers.asked:
        world.metadata.topic("Topic")
        world.clock.pump([0.5] * 4)
    for _ in range(3):
        world.brokers.asked.clear()
        world.metadata.topic("Topic")
        assert [name for name, _ in world.brokers.asked] == ["b"]
        world.clock.advance(2)


def test_a_topic_is_waited_for_as_long_as_it_is_said() -> None:
    world = World(topic_config_cache_refresh_seconds=1, topic_config_cache_expired_seconds=2)
    known = world.topic()
    world.brokers.answer = world.brokers.hanging
    world.clock.advance(5)
    found: list[TopicConfig | None] = []
    for name in ("Topic", "Other"):
        within = Deferred.fromCoroutine(world.metadata.topic_within(name, 0.5))
        within.addCallback(found.append)
    world.clock.advance(0.25)
    # No broker has the other one.
    assert found == [None]
    world.clock.advance(0.25)
    assert found == [None, known]


def test_a_group_is_known_though_one_of_its_brokers_hangs() -> None:
    world = World()
    one_hangs(world)
    found: list[SubscriptionGroupConfig | None] = []
    world.asked_for("G").addCallback(found.append)
    world.clock.advance(0.9)
    assert not found
    world.clock.advance(0.1)
    assert found[0] is not None and found[0].group_name == "G"
    assert not world.clock.getDelayedCalls()


def test_what_a_broker_that_hangs_said_of_a_group_before_counts() -> None:
    world = World()

    def answer(name: str, request: RemotingCommand) -> Deferred[RemotingCommand]:
        group = SubscriptionGroupConfig(group_name="G", consume_message_orderly=name == "a")
        return succeed(request.response(body=encode_body(group)))

    world.brokers.answer = answer
    assert world.group() is not None
    world.clock.advance(300)
    world.brokers.answer = lambda name, request: (
        world.brokers.hanging(name, request) if name == "a" else answer(name, request)
    )
    found: list[SubscriptionGroupConfig | None] = []
    world.asked_for("G").addCallback(found.append)
    world.clock.advance(1)
    assert found[0] is not None and found[0].consume_message_orderly


def test_a_group_that_those_do_not_have_who_answer_is_waited_for() -> None:
    world = World()
    asked: list[tuple[RemotingCommand, Deferred[RemotingCommand]]] = []

    def answer(name: str, request: RemotingCommand) -> Deferred[RemotingCommand]:
        if name == "b":
            return world.brokers.unknown(name, request)
        asked.append((request, Deferred()))
        return asked[-1][1]

    world.brokers.answer = answer
    found: list[SubscriptionGroupConfig | None] = []
    world.asked_for("G").addCallback(found.append)
    world.clock.advance(2)
    assert not found
    ((request, late),) = asked
    world.brokers.known("a", request).addCallback(late.callback)
    assert found[0] is not None and found[0].consume_message_orderly


def test_a_group_of_which_no_broker_says_how_it_consumes_is_not_taken_for_none() -> None:
    world = World()
    world.brokers.answer = world.brokers.unreachable
    for _ in range(3):
        failures: list[Failure] = []
        world.asked_for("G").addErrback(failures.append)
        assert failures[0].check(ConnectError)
        world.clock.advance(0.5)
    none: list[SubscriptionGroupConfig | None] = []
    Deferred.fromCoroutine(world.metadata.group_or_none("G", ["Topic"])).addCallback(none.append)
    assert none == [None]
    world.clock.advance(1)
    world.brokers.answer = world.brokers.unknown
    assert world.group() is None


def test_a_group_is_not_taken_for_none_before_brokers_are_known() -> None:
    world = World()
    world.brokers.told = False
    failures: list[Failure] = []
    world.asked_for("G").addErrback(failures.append)
    assert failures[0].check(ConnectError) and "try again" in failures[0].getErrorMessage()
    world.brokers.told = True
    group = world.group()
    assert group is not None and group.consume_message_orderly


def test_what_a_broker_said_counts_while_it_does_not_answer() -> None:
    world = World()

    def answer(name: str, request: RemotingCommand) -> Deferred[RemotingCommand]:
        if name == "a" and world.clock.seconds() % 200 > 50:
            return world.brokers.unreachable(name, request)
        group = SubscriptionGroupConfig(group_name="G", consume_message_orderly=name == "a")
        return succeed(request.response(body=encode_body(group)))

    world.brokers.answer = answer
    for _ in range(400):
        group = world.group()
        assert group is not None and group.consume_message_orderly
        world.clock.advance(1)


def test_a_group_of_the_topics_brokers_that_consumes_in_order_does_so_everywhere() -> None:
    """Though a broker that was added later does not know it, or has made an ordinary one."""
    for other in (False, None):
        world = World()

        def answer(
            name: str, request: RemotingCommand, found: bool | None = other, world: World = world
        ) -> Deferred[RemotingCommand]:
            orderly = True if name == "b" else found
            if orderly is None:
                return world.brokers.unknown(name, request)
            group = SubscriptionGroupConfig(group_name="G", consume_message_orderly=orderly)
            return succeed(request.response(body=encode_body(group)))

        world.brokers.answer = answer
        for _ in range(100):
            group = world.group()
            assert group is not None and group.consume_message_orderly
            world.clock.advance(30)
        # Brokers that do not serve the topic have no say.
        assert {name for name, _ in world.brokers.asked} == {"a", "b"}


def test_it_is_refreshed_while_the_former_one_is_given_out() -> None:
    world = World()
    world.group()
    world.clock.advance(20)
    asked: list[Deferred[RemotingCommand]] = []

    def late(name: str, request: RemotingCommand) -> Deferred[RemotingCommand]:
        asked.append(Deferred())
        return asked[-1]

    world.brokers.answer = late
    assert world.group() is not None
    assert world.group() is not None
    assert len(asked) == 2


def test_those_who_ask_meanwhile_share_the_answer() -> None:
    world = World()
    asked: list[tuple[RemotingCommand, Deferred[RemotingCommand]]] = []

    def late(name: str, request: RemotingCommand) -> Deferred[RemotingCommand]:
        asked.append((request, Deferred()))
        return asked[-1][1]

    world.brokers.answer = late
    found: list[SubscriptionGroupConfig | None] = []
    for _ in range(3):
        world.asked_for("G").addCallback(found.append)
    assert len(asked) == 2
    for request, answer in asked:
        world.brokers.known("a", request).addCallback(answer.callback)
    assert [group.group_name for group in found if group] == ["G"] * 3


def test_a_group_that_is_made_is_seen_soon() -> None:
    world = World()
    world.brokers.answer = world.brokers.unknown
    assert world.group() is None
    world.brokers.answer = world.brokers.known
    assert world.group() is None
    world.clock.advance(1)
    assert world.group() is not None


def test_the_last_one_is_given_out_while_no_broker_answers() -> None:
    world = World()
    world.group()
    world.brokers.answer = world.brokers.unreachable
    world.clock.advance(300)
    assert world.group() is not None


def test_what_is_remembered_is_bounded() -> None:
    world = World(subscription_group_config_cache_max_num=3)
    for number in range(10):
        world.group(f"G{number}")
    asked = len(world.brokers.asked)
    world.group("G9"), world.group("G7")
    assert len(world.brokers.asked) == asked
    world.group("G0")
    assert len(world.brokers.asked) == asked + 2
