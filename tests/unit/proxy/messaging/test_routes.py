"""QueryRoute and QueryAssignment."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.messaging.endpoints import MAX_ADDRESSES
from rocketmq_tw.proxy.messaging.routes import RouteQueries
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto.messages import (
    Address,
    AddressScheme,
    Code,
    Endpoints,
    MessageType,
    Permission,
    QueryAssignmentRequest,
    QueryRouteRequest,
    Resource,
)
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.errors import RequestError
from tests.support.proxy import FakeCall, PlayedBrokers, answer_of

SERVICE = "/apache.rocketmq.v2.MessagingService/"
ALL_TYPES = [MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION]


def asking_for_queues(topic: Resource) -> QueryAssignmentRequest:
    return QueryAssignmentRequest(topic=topic, group=Resource(name="G"), endpoints=asked_at("p", 1))


class World:
    def __init__(self, **config: Any) -> None:
        self.brokers = PlayedBrokers()
        self.brokers.answer(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, self._group)
        self.is_fifo = False
        config.setdefault("use_endpoint_port_from_request", True)
        self.clock = Clock()
        metadata = Metadata(self.clock, self.brokers)
        self.methods = RouteQueries(self.brokers, metadata, ProxyConfig(**config)).methods()

    def _group(self, request: Any) -> Any:
        config = SubscriptionGroupConfig(group_name="G", consume_message_orderly=self.is_fifo)
        return request.response(body=encode_body(config))

    def route(
        self, topic: str = "T", namespace: str = "", endpoints: Any = None, **call: Any
    ) -> Any:
        request = QueryRouteRequest(
            topic=Resource(name=topic, resource_namespace=namespace), endpoints=endpoints
        )
        answer = self.methods[SERVICE + "QueryRoute"].handler(request, FakeCall(**call))
        return answer_of(answer, self.clock)

    def assignment(self, topic: str = "T", group: str = "G") -> Any:
        request = QueryAssignmentRequest(
            topic=Resource(name=topic), group=Resource(name=group), endpoints=asked_at("p", 1)
        )
        return answer_of(self.methods[SERVICE + "QueryAssignment"].handler(request, FakeCall()))


def asked_at(host: str, port: int, scheme: int = 0) -> Endpoints:
    return Endpoints(scheme=scheme, addresses=[Address(host=host, port=port)])


def places(response: Any) -> set[tuple[int, str, int]]:
    """Scheme, host and port of all queues."""
    return {
        (queue.broker.endpoints.scheme, address.host, address.port)
        for queue in response.message_queues
        for address in queue.broker.endpoints.addresses
    }


class TestRoute:
    def test_queues_of_all_brokers_are_at_the_proxy(self) -> None:
        world = World()
        world.brokers.add_topic("T", {"broker-a": 2, "broker-b": 1})
        response = world.route(endpoints=asked_at("proxy.example", 8081, AddressScheme.DOMAIN_NAME))
        assert response.status.code == Code.OK
        assert [(queue.broker.name, queue.id) for queue in response.message_queues] == [
            ("broker-a", 0),
            ("broker-a", 1),
            ("broker-b", 0),
        ]
        assert places(response) == {(AddressScheme.DOMAIN_NAME, "proxy.example", 8081)}
        assert {queue.permission for queue in response.message_queues} == {Permission.READ_WRITE}
        assert {queue.topic.name for queue in response.message_queues} == {"T"}

    @pytest.mark.parametrize(
        ("kind", "types"),
        [
            ("", [MessageType.NORMAL]),
            ("FIFO", [MessageType.FIFO]),
            ("DELAY", [MessageType.DELAY]),
            ("TRANSACTION", [MessageType.TRANSACTION]),
            ("MIXED", ALL_TYPES),
            ("UNSPECIFIED", ALL_TYPES),
            ("LITE", [MessageType.MESSAGE_TYPE_UNSPECIFIED]),
        ],
    )
    def test_a_queue_says_which_messages_it_takes(self, kind: str, types: list[int]) -> None:
        world = World()
        world.brokers.add_topic("T", {"broker-a": 1}, message_type=kind)
        (queue,) = world.route(endpoints=asked_at("10.0.0.1", 8081)).message_queues
        assert list(queue.accept_message_types) == types

    def test_all_messages_are_named_where_the_broker_cannot_be_reached(self) -> None:
        """Sends are taken then, and Java's client sends what is named only."""
        world = World()
        world.brokers.add_topic("T", {"broker-a": 1}, message_type="FIFO")
        world.brokers.gone.add("broker-a")
        (queue,) = world.route(endpoints=asked_at("10.0.0.1", 8081)).message_queues
        assert list(queue.accept_message_types) == ALL_TYPES

    def test_a_route_does_not_wait_long_for_a_broker_that_hangs(self) -> None:
        """Java's client waits 3 s for the whole answer."""
        world = World()
        world.brokers.add_topic("T", {"broker-a": 1}, message_type="FIFO")
        world.brokers.silent.add(RequestCode.GET_TOPIC_CONFIG)
        (queue,) = world.route(endpoints=asked_at("10.0.0.1", 8081)).message_queues
        assert list(queue.accept_message_types) == ALL_TYPES
        assert 1 <= world.clock.seconds() < 1.5

    @pytest.mark.parametrize(
        ("perm", "read", "write", "expected"),
        [
            (6, 3, 1, [Permission.READ, Permission.READ, Permission.READ_WRITE]),
            (6, 1, 2, [Permission.WRITE, Permission.READ_WRITE]),
            (4, 2, 2, [Permission.READ, Permission.READ]),
            (2, 1, 2, [Permission.WRITE, Permission.WRITE]),
            (0, 2, 1, [Permission.NONE, Permission.NONE]),
        ],
    )
    def test_permissions_are_those_of_stock(
        self, perm: int, read: int, write: int, expected: list[int]
    ) -> None:
        world = World()
        world.brokers.add_topic("T", {"broker-a": 1}, perm=perm)
        (data,) = world.brokers.routes["T"].queue_datas
        data.read_queue_nums, data.write_queue_nums = read, write
        queues = world.route(endpoints=asked_at("10.0.0.1", 8081)).message_queues
        assert [queue.permission for queue in queues] == expected
        assert [queue.id for queue in queues] == list(range(len(expected)))

    def test_queues_without_their_broker_are_left_out_and_others_stay(self) -> None:
        world = World()
        world.brokers.add_topic("T", {"broker-a": 1, "broker-b": 1})
        del world.brokers.routes["T"].broker_datas[0]
        queues = world.route(endpoints=asked_at("10.0.0.1", 8081)).message_queues
        assert [queue.broker.name for queue in queues] == ["broker-b"]

    def test_slaves_have_their_ids(self) -> None:
        world = World()
        world.brokers.add_topic("T", {"broker-a": 1})
        world.brokers.routes["T"].broker_datas[0].broker_addrs = {1: "s:1", 0: "m:1"}
        queues = world.route(endpoints=asked_at("10.0.0.1", 8081)).message_queues
        assert [queue.broker.id for queue in queues] == [0, 1]

    def test_the_topic_is_named_as_it_was_asked_for(self) -> None:
        world = World()
        world.brokers.add_topic("T", {"broker-a": 1})
        (queue,) = world.route(namespace="ns", endpoints=asked_at("10.0.0.1", 1)).message_queues
        assert (queue.topic.resource_namespace, queue.topic.name) == ("ns", "T")

    def test_what_the_request_has_beside_the_name_is_not_repeated(self) -> None:
        world = World()
        world.brokers.add_topic("T", {"broker-a": 8})
        topic = Resource(name="T")
        # A field that nobody knows.
        topic.MergeFromString(b"\xfa\x3e\x90\x4e" + bytes(10_000))
        for method in (QueryRouteRequest(topic=topic), asking_for_queues(topic)):
            name = type(method).__name__.removesuffix("Request")
            answer = answer_of(world.methods[SERVICE + name].handler(method, FakeCall()))
            assert 0 < answer.ByteSize() < 2000


class TestEndpoints:
    def asked(self, world: World, endpoints: Any = None, **call: Any) -> Any:
        world.brokers.add_topic("T", {"broker-a": 1})
        return places(world.route(endpoints=endpoints, **call))

    def test_all_addresses_of_the_client_are_named(self) -> None:
        two = Endpoints(
            scheme=AddressScheme.IPv4,
            addresses=[Address(host="10.0.0.1", port=1), Address(host="10.0.0.2", port=2)],
        )
        assert self.asked(World(), two) == {
            (AddressScheme.IPv4, "10.0.0.1", 1),
            (AddressScheme.IPv4, "10.0.0.2", 2),
        }

    @pytest.mark.parametrize(
        ("host", "scheme"),
        [
            ("10.0.0.1", AddressScheme.IPv4),
            ("fd00::1", AddressScheme.IPv6),
            ("proxy.example", AddressScheme.DOMAIN_NAME),
        ],
    )
    def test_a_scheme_that_is_not_said_is_that_of_the_host(self, host: str, scheme: int) -> None:
        assert self.asked(World(), asked_at(host, 8081)) == {(scheme, host, 8081)}

    def test_the_port_may_be_that_of_the_proxy(self) -> None:
        world = World(use_endpoint_port_from_request=False, grpc_server_port=8099)
        assert self.asked(world, asked_at("10.0.0.1", 80)) == {
            (AddressScheme.IPv4, "10.0.0.1", 8099)
        }

    def test_an_advertised_address_is_named_whatever_was_asked(self) -> None:
        world = World(advertised_address="proxies.example:443")
        found = self.asked(world, asked_at("10.0.0.1", 80))
        assert found == {(AddressScheme.DOMAIN_NAME, "proxies.example", 443)}

    def test_without_endpoints_it_is_where_the_call_came_in(self) -> None:
        world = World()
        assert self.asked(world, authority="[fd00::1]:8081") == {
            (AddressScheme.IPv6, "fd00::1", 8081)
        }
        assert self.asked(world, authority="nonsense") == {(AddressScheme.IPv4, "10.0.0.1", 8081)}

    @pytest.mark.parametrize(
        "endpoints",
        [
            asked_at("", 8081),
            asked_at("10.0.0.1", 0),
            asked_at("10.0.0.1", 70_000),
            asked_at("h" * 1000, 8081),
            Endpoints(addresses=[Address(host="h", port=1)] * (MAX_ADDRESSES + 1)),
        ],
    )
    def test_places_that_nobody_reaches_are_refused(self, endpoints: Endpoints) -> None:
        world = World()
        world.brokers.add_topic("T", {"broker-a": 1})
        assert world.route(endpoints=endpoints).status.code == Code.ILLEGAL_ACCESS_POINT


class TestRefusals:
    def test_a_topic_that_no_broker_has(self) -> None:
        status = World().route("Missing").status
        assert status.code == Code.TOPIC_NOT_FOUND
        assert (
            "CODE: 17  DESC: No topic route info in name server for the topic: " in status.message
        ), "stock's words"
        assert "Missing" in status.message

    def test_a_topic_before_name_servers_tell_of_brokers(self) -> None:
        world = World()
        world.brokers.told = False
        status = world.route("Missing").status
        assert status.code == Code.INTERNAL_SERVER_ERROR
        assert "try again" in status.message

    @pytest.mark.parametrize("topic", ["", "a b", "t" * 200, "TBW102", "rmq_sys_wheel_timer"])
    def test_illegal_topics(self, topic: str) -> None:
        assert World().route(topic).status.code == Code.ILLEGAL_TOPIC

    def test_no_name_server(self) -> None:
        world = World()
        world.brokers.route_error = RequestError(ResponseCode.SYSTEM_ERROR, "no name server")
        status = world.route().status
        assert (status.code, status.message) == (Code.INTERNAL_SERVER_ERROR, "no name server")

    @pytest.mark.parametrize("group", ["", "a b", "g" * 300, "CID_RMQ_SYS_x"])
    def test_illegal_groups(self, group: str) -> None:
        assert World().assignment(group=group).status.code == Code.ILLEGAL_CONSUMER_GROUP


class TestAssignment:
    def test_a_group_receives_from_any_queue_of_each_broker(self) -> None:
        world = World()
        world.brokers.add_topic("T", {"broker-a": 4, "broker-b": 4})
        response = world.assignment()
        assert response.status.code == Code.OK
        queues = [assignment.message_queue for assignment in response.assignments]
        assert [(queue.broker.name, queue.id) for queue in queues] == [
            ("broker-a", -1),
            ("broker-b", -1),
        ]
        assert queues[0].broker.endpoints == Endpoints(
            scheme=AddressScheme.DOMAIN_NAME, addresses=[Address(host="p", port=1)]
        )

    def test_a_fifo_group_gets_each_queue(self) -> None:
        world = World()
        world.is_fifo = True
        world.brokers.add_topic("T", {"broker-a": 2})
        assert [a.message_queue.id for a in world.assignment().assignments] == [0, 1]

    def test_a_broker_whose_master_is_gone_is_the_slave(self) -> None:
        world = World()
        world.brokers.add_topic("T", {"broker-a": 1})
        world.brokers.routes["T"].broker_datas[0].broker_addrs = {2: "s:1"}
        (assignment,) = world.assignment().assignments
        assert assignment.message_queue.broker.id == 2

    def test_no_readable_queue(self) -> None:
        world = World()
        world.brokers.add_topic("T", {"broker-a": 1}, perm=2)
        assert world.assignment().status.code == Code.FORBIDDEN
