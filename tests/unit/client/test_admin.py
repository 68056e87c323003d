import pytest
from twisted.internet.task import Clock

from rocketmq_tw.client.admin import AdminClient
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.stats import KVTable
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicList
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.namesrv import PutKVConfigRequestHeader
from rocketmq_tw.wire.headers.topics import CreateTopicRequestHeader
from tests.support.network import MemoryNetwork

FIRST, SECOND, BROKER = "10.0.0.1:9876", "10.0.0.2:9876", "10.0.0.3:10911"


class World:
    """Two name servers and a broker that note what they are asked and answer from a table."""

    def __init__(self):
        self.clock = Clock()
        self.network = MemoryNetwork(self.clock)
        self.requests = []
        self.answers = {}
        for address in (FIRST, SECOND, BROKER):
            self.network.serve(address, self.table(address))
        self.admin = AdminClient(self.clock, f"{FIRST};{SECOND}", remoting=self.network.client())

    def table(self, address):
        def answer(request, peer):
            self.requests.append((address, request))
            refusal = self.answers.get(request.code, b"")
            if isinstance(refusal, RequestError):
                raise refusal
            return request.response(body=refusal)

        return dict.fromkeys(RequestCode, answer)

    def run(self, deferred):
        outcome = []
        deferred.addBoth(outcome.append)
        self.clock.advance(0)
        if hasattr(outcome[0], "raiseException"):
            outcome[0].raiseException()
        return outcome[0]


@pytest.fixture
def world():
    return World()


def test_one_name_server_is_asked(world):
    world.answers[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = encode_body(
        TopicList(topic_list=["a", "b"])
    )
    assert world.run(world.admin.topic_list()).topic_list == ["a", "b"]
    assert [address for address, _ in world.requests] == [FIRST]


def test_the_next_name_server_is_asked_where_one_is_down(world):
    world.network.stop(FIRST)
    world.answers[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = encode_body(TopicList())
    world.run(world.admin.topic_list())
    world.run(world.admin.topic_list())
    assert [address for address, _ in world.requests] == [SECOND, SECOND]


def test_all_name_servers_are_told(world):
    world.run(world.admin.put_kv_config("ns", "key", "value"))
    assert [address for address, _ in world.requests] == [FIRST, SECOND]
    header = world.requests[0][1].header(PutKVConfigRequestHeader)
    assert (header.namespace, header.key, header.value) == ("ns", "key", "value")


def test_a_topic_is_created_on_the_broker_that_is_named(world):
    config = TopicConfig(topic_name="T", write_queue_nums=3, attributes={"a": "1", "b": "2"})
    world.run(world.admin.update_topic(BROKER, config))
    ((address, request),) = world.requests
    header = request.header(CreateTopicRequestHeader)
    assert (address, header.topic, header.write_queue_nums) == (BROKER, "T", 3)
    assert header.attributes == "+a=1,+b=2"


def test_a_group_travels_as_a_body(world):
    world.run(world.admin.update_group(BROKER, SubscriptionGroupConfig(group_name="g")))
    body = decode_body(SubscriptionGroupConfig, world.requests[0][1].body)
    assert body.group_name == "g"


def test_configurations_are_properties(world):
    world.answers[RequestCode.GET_BROKER_CONFIG] = b"brokerName=a\nname=\\u00fc\n"
    assert world.run(world.admin.broker_config(BROKER)) == {"brokerName": "a", "name": "\u00fc"}
    world.run(world.admin.update_broker_config(BROKER, {"key": "a value"}))
    assert world.requests[-1][1].body == b"key=a value\n"


def test_bodies_are_typed(world):
    world.answers[RequestCode.GET_BROKER_RUNTIME_INFO] = encode_body(KVTable(table={"k": "v"}))
    assert world.run(world.admin.runtime_info(BROKER)).table == {"k": "v"}


def test_a_refusal_has_code_remark_and_address(world):
    world.answers[RequestCode.DELETE_TOPIC_IN_BROKER] = RequestError(
        ResponseCode.NO_PERMISSION, "not you"
    )
    with pytest.raises(BrokerError, match=f"{BROKER} answered 16: not you"):
        world.run(world.admin.delete_topic(BROKER, "T"))


def test_a_missing_route_is_none(world):
    world.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = RequestError(
        ResponseCode.TOPIC_NOT_EXIST, "none"
    )
    assert world.run(world.admin.topic_route("T")) is None
