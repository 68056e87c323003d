from random import Random

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.client.errors import BrokerError, NoRouteError
from rocketmq_tw.client.message import Message, SendStatus
from rocketmq_tw.client.producer import Producer, by_key
from rocketmq_tw.client.pull import PullConsumer
from rocketmq_tw.client.push import PushConsumer
from rocketmq_tw.message.compression import CompressionType, compression_type, decompress
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.net.errors import ConnectionLost, RemotingError, RequestTimeout
from rocketmq_tw.structs import structs
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.errors import RequestError, WireError
from rocketmq_tw.wire.headers.send import SendMessageRequestHeaderV2

#: What a broker adds to the properties of a message.
OF_BROKERS = {"MSG_REGION", "TRACE_ON", "CLUSTER"}


def test_a_message_is_stored_with_all_that_it_has(world):
    producer = world.producer()
    message = Message(
        "T",
        b"body",
        tags="a",
        keys=["k1", "k2"],
        properties={"name": "\u00fcn\u00efcode"},
        sharding_key="s",
        flag=7,
    )
    result = world.run(producer.send(message))
    (stored,) = world.stored("T")
    assert (stored.body, stored.flag) == (b"body", 7)
    properties = parse_properties(stored.properties)
    assert {key: properties[key] for key in properties.keys() - OF_BROKERS} == {
        "TAGS": "a",
        "KEYS": "k1 k2",
        "name": "\u00fcn\u00efcode",
        "__SHARDINGKEY": "s",
        "WAIT": "true",
        "UNIQ_KEY": result.message_id,
    }
    assert result.status is SendStatus.SEND_OK
    assert result.queue == MessageQueue(topic="T", broker_name="broker-a", queue_id=stored.queue_id)
    assert len(result.message_id) == 32


def test_a_delayed_message_is_seen_when_its_time_has_come(world):
    world.run(world.producer().send(Message("T", b"late", delay_level=2)))
    world.wait(4.9)
    assert world.stored("T") == []
    world.wait(0.5)
    assert [message.body for message in world.stored("T")] == [b"late"]


def test_queues_take_turns(world):
    producer = world.producer()
    ids = [world.run(producer.send(Message("T", b"x"))).queue.queue_id for _ in range(8)]
    assert ids == [0, 1, 2, 3] * 2


def test_queues_of_each_topic_take_turns_whatever_is_sent_to_others(world):
    for topic in ("U", "V", "W"):
        world.add_topic(topic, 4)
    producer = world.producer()
    # As many queues as topics: one count for all would give each topic the same queue each time.
    found = [
        world.run(producer.send(Message(topic, b"x"))).queue.queue_id
        for _ in range(4)
        for topic in ("T", "U", "V", "W")
    ]
    assert found[::4] == [0, 1, 2, 3]


def test_a_chosen_queue_and_a_selector(world):
    producer = world.producer()
    queues = world.run(producer.queues("T"))
    assert world.run(producer.send(Message("T", b"x"), queue=queues[2])).queue == queues[2]
    chosen = {
        world.run(producer.send(Message("T", b"x"), selector=by_key("order-7"))).queue
        for _ in range(3)
    }
    assert len(chosen) == 1


def test_large_bodies_are_compressed(world):
    world.run(world.producer().send(Message("T", b"x" * 4096)))
    world.run(world.producer().send(Message("T", b"x" * 4095)))
    large, small = world.stored("T")
    assert compression_type(large.sys_flag) is CompressionType.ZLIB
    assert decompress(large.body, CompressionType.ZLIB) == b"x" * 4096
    assert compression_type(small.sys_flag) is None


def test_a_largest_body_that_cannot_be_compressed_goes_as_it_is(world):
    sent = world.record(RequestCode.SEND_MESSAGE_V2)
    body = Random(1).randbytes(4 * 1024 * 1024)
    with pytest.raises(BrokerError, match="mappedFileSizeCommitLog"):
        # Files of these tests are small; that the body is too long would be told first.
        world.run(world.producer().send(Message("T", body)))
    assert sent[0].body == body
    assert not sent[0].header(SendMessageRequestHeaderV2).sys_flag


def test_a_queue_of_another_topic_is_refused(world):
    producer, queue = world.producer(), MessageQueue(topic="U", broker_name="broker-a", queue_id=0)
    with pytest.raises(ValueError, match="a queue of U for a message of T"):
        producer.send(Message("T", b"x"), queue=queue)
    with pytest.raises(ValueError, match="a queue of U for a message of T"):
        producer.send_batch([Message("T", b"x")], queue=queue)
    with pytest.raises(ValueError, match="a queue of U for a message of T"):
        producer.send_oneway(Message("T", b"x"), queue=queue)


def test_a_batch_is_stored_message_by_message(world):
    batch = [Message("T", b"%d" % number, tags="a") for number in range(3)]
    result = world.run(world.producer().send_batch(batch))
    stored = world.stored("T")
    assert [message.body for message in stored] == [b"0", b"1", b"2"]
    assert len({message.queue_id for message in stored}) == 1
    ids = [parse_properties(message.properties)["UNIQ_KEY"] for message in stored]
    assert result.message_id == ",".join(ids)


def test_the_property_wait_says_the_same_as_the_field(world):
    producer, asked = world.producer(), {"WAIT": "false"}
    world.run(producer.send(Message("T", b"x", properties=dict(asked))))
    world.run(producer.send(Message("T", b"x", wait_store=False)))
    world.run(producer.send_batch([Message("T", b"x", properties=dict(asked))]))
    waits = [parse_properties(message.properties)["WAIT"] for message in world.stored("T")]
    assert waits == ["false"] * 3


def test_a_oneway_message_arrives(world):
    world.run(world.producer().send_oneway(Message("T", b"x")))
    assert len(world.stored("T")) == 1


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x" * (4 * 1024 * 1024 + 1)),
        Message("T", b"", properties={"a\x01b": "c"}),
        Message("T", b"", tags="a\x02"),
        Message("T", b"", properties={"empty": ""}),
        Message("T", b"", properties={"long": "x" * 40000}),
        Message("T", b"x", properties={"TRAN_MSG": "true"}),
        Message("no/slash", b""),
        Message("", b""),
        Message("t" * 128, b""),
    ],
)
def test_an_illegal_message_raises_at_once(world, message):
    with pytest.raises((ValueError, RequestError)):
        world.producer().send(message)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [Message("T", b"x"), Message("U", b"x")],
        [Message("T", b"x", delay_level=1)],
        [Message("T", b"x", properties={"DELAY": "5"})],
        [Message("T", b"x"), Message("T", b"x", properties={"TIMER_DELAY_SEC": "60"})],
        [Message("T", b"x", properties={"TIMER_DELIVER_MS": "1"})],
        [Message("%RETRY%g", b"x")],
        [Message("T", b"x"), Message("T", b"x", wait_store=False)],
    ],
)
def test_an_illegal_batch_raises_at_once(world, messages):
    with pytest.raises(ValueError):
        world.producer().send_batch(messages)


def test_another_broker_takes_what_one_refuses(world):
    world.add_other()

    def busy(request, peer):
        raise RequestError(ResponseCode.SYSTEM_BUSY, "full")

    world.answer(RequestCode.SEND_MESSAGE_V2, busy)
    producer = world.producer()
    for _ in range(4):
        assert world.run(producer.send(Message("T", b"x"))).queue.broker_name == "broker-b"


def test_another_broker_takes_what_a_dead_one_cannot(world):
    world.add_other()
    producer = world.producer()
    world.run(producer.send(Message("T", b"x")))
    world.network.stop(world.address)
    for _ in range(4):
        assert world.run(producer.send(Message("T", b"x"))).queue.broker_name == "broker-b"


def test_a_third_broker_takes_what_two_dead_ones_cannot(world):
    for name, address in (("broker-b", "10.0.0.3:10911"), ("broker-c", "10.0.0.4:10911")):
        world.names.register(address, name, "T", 4)
    producer = world.producer()
    world.run(producer.queues("T"))
    sent = [producer.send(Message("T", b"x")) for _ in range(12)]
    assert {world.run(each).queue.broker_name for each in sent} == {"broker-a"}


def test_another_broker_takes_what_one_without_an_address_cannot(world):
    producer = world.producer()
    world.run(producer.start())
    world.run(producer.queues("T"))
    routes = producer.session.routes
    order = "broker-gone:2;broker-a:2"
    routes.put("T", structs.replace(routes.known()["T"], order_topic_conf=order))
    for _ in range(4):
        assert world.run(producer.send(Message("T", b"x"))).queue.broker_name == "broker-a"


def test_a_broken_connection_is_made_anew_for_the_next_try(world):
    def drop(request, peer):
        world.answer(RequestCode.SEND_MESSAGE_V2, before)
        peer.lose_connection()
        return Deferred()

    before = world.answer(RequestCode.SEND_MESSAGE_V2, drop)
    assert world.run(world.producer().send(Message("T", b"x"))).status is SendStatus.SEND_OK
    assert len(world.stored("T")) == 1


def test_a_message_that_may_be_stored_is_told_so_whatever_further_tries_say(world):
    world.answer(RequestCode.SEND_MESSAGE_V2, lambda request, peer: Deferred())
    sent = world.producer().send(Message("T", b"x"))
    world.clock.advance(0)
    world.network.stop(world.address)
    with pytest.raises(ConnectionLost, match=world.address):
        world.run(sent)


def test_a_stop_tells_of_an_open_send_that_it_may_be_stored(world):
    world.answer(RequestCode.SEND_MESSAGE_V2, lambda request, peer: Deferred())
    producer = world.producer()
    world.run(producer.start())
    sent = producer.send(Message("T", b"x"))
    world.clock.advance(0)
    world.run(producer.stop())
    with pytest.raises(ConnectionLost, match=world.address):
        world.run(sent)
    assert world.client_clock.getDelayedCalls() == []


def test_a_route_that_changes_between_two_tries_is_no_reason_to_fail(world):
    world.add_other()
    producer = world.producer()

    def busy(request, peer):
        routes = producer.session.routes
        route = routes.known()["T"]
        routes.put("T", structs.replace(route, queue_datas=route.queue_datas[1:]))
        raise RequestError(ResponseCode.SYSTEM_BUSY, "full")

    world.answer(RequestCode.SEND_MESSAGE_V2, busy)
    assert world.run(producer.send(Message("T", b"x"))).queue.broker_name == "broker-b"


def test_a_refusal_for_good_is_not_tried_again(world):
    tries = []

    def refuse(request, peer):
        tries.append(request.header(SendMessageRequestHeaderV2).queue_id)
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "too long")

    world.answer(RequestCode.SEND_MESSAGE_V2, refuse)
    with pytest.raises(BrokerError, match="answered 13: too long") as raised:
        world.run(world.producer().send(Message("T", b"x")))
    assert raised.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert len(tries) == 1


def test_a_chosen_queue_is_not_exchanged_for_another(world):
    tries = []

    def refuse(request, peer):
        tries.append(request.header(SendMessageRequestHeaderV2).queue_id)
        raise RequestError(ResponseCode.SYSTEM_BUSY, "full")

    world.answer(RequestCode.SEND_MESSAGE_V2, refuse)
    producer = world.producer()
    queue = world.run(producer.queues("T"))[1]
    with pytest.raises(BrokerError):
        world.run(producer.send(Message("T", b"x"), queue=queue))
    assert tries == [1]


def test_all_tries_together_end_at_the_timeout(world):
    world.answer(RequestCode.SEND_MESSAGE_V2, lambda request, peer: Deferred())
    outcome = []
    world.producer().send(Message("T", b"x"), timeout=2).addErrback(outcome.append)
    world.wait(1.9)
    assert outcome == []
    world.wait(0.2)
    assert outcome[0].check(RequestTimeout)


def test_a_topic_that_is_not_there_goes_where_the_default_topic_is(world):
    world.broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"autoCreateTopicEnable=true")
    world.add_topic("TBW102", 8, perm=7)
    producer = world.producer()
    assert len(world.run(producer.queues("NEW"))) == 4
    assert world.run(producer.send(Message("NEW", b"x"))).status is SendStatus.SEND_OK
    world.add_topic("NEW", 6)
    producer.session.start()
    world.wait(31)
    assert len(world.run(producer.queues("NEW"))) == 6, "the real route, once it is there"


def test_without_a_default_topic_there_is_no_route(world):
    with pytest.raises(NoRouteError, match="start one, or create the topic NEW"):
        world.run(world.producer().send(Message("NEW", b"x")))


def test_brokers_hear_of_the_group_until_it_stops(world):
    producer = world.producer()
    world.run(producer.start())
    world.run(producer.send(Message("T", b"x")))
    registry = world.broker.clients
    (client,) = registry.producers("producers")
    assert client.client_id == "client-1"
    registry.unregister_producer("producers", client.peer)
    world.wait(31)
    assert [client.client_id for client in registry.producers("producers")] == ["client-1"]
    world.run(producer.stop())
    assert registry.producers("producers") == []
    assert world.client_clock.getDelayedCalls() == []


class TestBrokersThatLeave:
    def without_broker_b(self, route):
        left = [data for data in route.broker_datas if data.broker_name != "broker-b"]
        return structs.replace(route, broker_datas=left)

    def test_one_that_is_in_no_route_any_more_hears_nothing(self, world):
        world.add_other()
        producer = world.producer()
        world.run(producer.start())
        world.run(producer.send(Message("T", b"x")))
        with capturedLogs() as events:
            world.other.stop()
            world.wait(31)
            del events[:]
            world.wait(62)
        assert [formatEvent(event) for event in events] == []
        assert list(producer.session.brokers) == ["broker-a"]
        world.run(producer.stop())

    def test_one_that_comes_back_hears_of_the_group(self, world):
        world.names.register(world.other_address, "broker-b", "T", 4)
        producer = world.producer()
        world.run(producer.start())
        world.run(producer.queues("T"))
        routes = producer.session.routes
        routes.put("T", self.without_broker_b(routes.known()["T"]))
        assert list(producer.session.brokers) == ["broker-a"]
        world.add_other()
        world.wait(31)
        assert len(world.other.clients.producers("producers")) == 1

    def test_one_stays_as_long_as_another_topic_has_it(self, world):
        world.add_other()
        world.other.add_topic("U")
        world.wait(0.1)
        producer = world.producer()
        for topic in ("T", "U"):
            world.run(producer.queues(topic))
        routes = producer.session.routes
        route = routes.known()["T"]
        for _ in range(2):
            routes.put("T", self.without_broker_b(route))
            assert sorted(producer.session.brokers) == ["broker-a", "broker-b"]
            routes.put("T", route)


class TestNameServers:
    def test_one_that_is_down_is_passed_over(self, world):
        producer = world.producer(f"10.9.9.9:9876;{world.names_address}")
        assert world.run(producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK

    def test_one_that_hangs_is_passed_over_and_not_asked_again(self, world):
        hanging = "10.9.9.7:9876"
        asked = []

        def never(request, peer):
            asked.append(request)
            return Deferred()

        world.network.serve(hanging, {RequestCode.GET_ROUTEINFO_BY_TOPIC: never})
        producer = world.producer(f"{hanging};{world.names_address}")
        world.run(producer.start())
        world.add_topic("U", 4)
        route = Deferred.fromCoroutine(producer.session.route("T"))
        world.wait(3.1)
        assert world.run(route).broker_datas
        assert world.run(Deferred.fromCoroutine(producer.session.route("U"))).broker_datas
        assert len(asked) == 1

    def test_none_that_answers_is_told_with_every_address(self, world):
        with pytest.raises(NoRouteError, match=r"10\.9\.9\.8:9876.*10\.9\.9\.9:9876"):
            world.run(world.producer("10.9.9.8:9876; 10.9.9.9:9876").send(Message("T", b"x")))

    def test_an_empty_list_is_refused(self, world):
        with pytest.raises(ValueError, match="no name server"):
            world.producer(" ; ")

    def test_routes_stay_in_use_while_no_name_server_answers(self, world):
        producer = world.producer()
        producer.session.start()
        world.run(producer.send(Message("T", b"x")))
        world.network.stop(world.names_address)
        world.wait(120)
        assert world.run(producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK

    def test_an_answer_that_is_no_route_does_not_end_the_looking(self, world):
        bad = []

        def answer(request, peer):
            if bad:
                return request.response(body=bad.pop())
            return world.names.route(request, peer)

        world.network.serve("10.9.9.6:9876", {RequestCode.GET_ROUTEINFO_BY_TOPIC: answer})
        producer = world.producer("10.9.9.6:9876")
        world.run(producer.start())
        assert len(world.run(producer.queues("T"))) == 4
        bad.append(b"[no route")
        world.add_topic("T", 6)
        world.wait(31)
        assert not bad
        world.wait(30)
        assert len(world.run(producer.queues("T"))) == 6

    @pytest.mark.parametrize("answer", [{"code": 1, "remark": "not ready"}, {"body": b"[no route"}])
    def test_one_that_answers_with_an_error_is_passed_over(self, world, answer):
        asked = []

        def refuse(request, peer):
            asked.append(request)
            return request.response(**answer)

        world.network.serve("10.9.9.5:9876", {RequestCode.GET_ROUTEINFO_BY_TOPIC: refuse})
        producer = world.producer(f"10.9.9.5:9876;{world.names_address}")
        world.add_topic("U", 4)
        for topic in ("T", "U"):
            assert world.run(producer.send(Message(topic, b"x"))).status is SendStatus.SEND_OK
        assert len(asked) == 1
        with pytest.raises((BrokerError, WireError)):
            world.run(world.producer("10.9.9.5:9876").send(Message("T", b"x")))

    def test_those_who_ask_at_once_share_a_request(self, world):
        producer = world.producer()
        for _ in range(5):
            producer.send(Message("T", b"x"))
        world.clock.advance(0)
        assert world.names.asked == ["T"]
        assert len(world.stored("T")) == 5


def test_a_lost_broker_fails_a_send_with_its_address(world):
    world.network.stop(world.address)
    with pytest.raises(RemotingError, match=world.address):
        world.run(world.producer(retries=0).send(Message("T", b"x")))


def test_a_producer_that_stopped_leaves_nothing_in_a_session_of_others(world):
    session = world.session()
    session.start()
    listeners = len(session.routes._changed)
    for _ in range(3):
        producer = Producer(world.client_clock, world.names_address, "producers", session=session)
        world.run(producer.start())
        world.run(producer.send(Message("T", b"x")))
        world.run(producer.stop())
    assert len(session.routes._changed) == listeners


def test_a_producer_that_starts_again_follows_routes_again(world):
    session = world.session()
    session.start()
    producer = Producer(world.client_clock, world.names_address, "producers", session=session)
    world.run(producer.start())
    assert len(world.run(producer.queues("T"))) == 4
    world.run(producer.stop())
    world.add_other()
    world.run(session.routes.refresh("T"))
    world.run(producer.start())
    brokers = {world.run(producer.send(Message("T", b"x"))).queue.broker_name for _ in range(8)}
    assert brokers == {"broker-a", "broker-b"}


@pytest.mark.parametrize("body", ["text", None, [1]])
def test_a_body_that_is_no_bytes_is_told_with_what_to_give(world, body):
    producer, message = world.producer(), Message("T", body)
    with pytest.raises(TypeError, match=r"a body of type \w+: give bytes"):
        producer.send(message)
    with pytest.raises(TypeError, match=r"a body of type \w+: give bytes"):
        producer.send_batch([message])


@pytest.mark.parametrize("client", [Producer, PullConsumer, PushConsumer])
def test_what_is_no_address_is_told_before_anything_is_asked(world, client):
    listener = [print] if client is PushConsumer else []
    with pytest.raises(ValueError, match=r"'10\.0\.0\.1' is no address: give host:port"):
        client(world.client_clock, ["10.0.0.1"], "g", *listener)
