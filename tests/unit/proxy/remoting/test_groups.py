"""Questions of classic clients about groups, and those of brokers to classic clients."""

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.net.errors import ConnectionLost, RequestTimeout
from rocketmq_tw.proxy.avoided import AVOID_SECONDS
from rocketmq_tw.proxy.heartbeat_sync.records import (
    REGISTER,
    UNREGISTER,
    ClientChannel,
    ConsumerHeartbeat,
)
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import Body, decode_body, encode_body
from rocketmq_tw.wire.bodies.clients import (
    CheckClientBody,
    Connection,
    ConsumerConnection,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    SubscriptionData,
)
from rocketmq_tw.wire.bodies.queues import QueryAssignmentRequestBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from tests.support.asked import refused
from tests.support.classic import ClassicPort, classic_request, echo
from tests.support.proxy import answer_of

ABOUT_GROUPS = [
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
]


@pytest.fixture
def port() -> ClassicPort:
    port = ClassicPort()
    port.brokers.add_topic("T", {"broker-b": 4, "broker-c": 4})
    port.brokers.add_topic("%RETRY%G", {"broker-a": 1, "broker-b": 1, "broker-c": 1})
    for code in port.requests.handlers():
        port.brokers.answer(code, echo)
    return port


def subscribe(port: ClassicPort) -> None:
    wanted = [SubscriptionData(topic=topic) for topic in ("%RETRY%G", "T")]
    consumer = ConsumerData(group_name="G", subscription_data_set=wanted)
    body = encode_body(HeartbeatData(client_id="c", consumer_data_set=[consumer]))
    port.ask(classic_request(RequestCode.HEART_BEAT, body))
    port.brokers.asked.clear()


@pytest.mark.parametrize("code", ABOUT_GROUPS)
def test_a_member_asks_a_broker_that_all_members_know(port: ClassicPort, code: int) -> None:
    subscribe(port)
    port.ask(classic_request(code, consumerGroup="G"))
    assert port.asked_names() == ["broker-b"]


@pytest.mark.parametrize("code", ABOUT_GROUPS)
def test_others_ask_until_a_broker_knows_the_group(port: ClassicPort, code: int) -> None:
    port.brokers.gone.add("broker-a")

    def answer(request: RemotingCommand) -> RemotingCommand:
        known = port.asked_names()[-1] == "broker-c"
        return request.response(ResponseCode.SUCCESS if known else ResponseCode.CONSUMER_NOT_ONLINE)

    port.brokers.answer(code, answer)
    assert port.ask(classic_request(code, consumerGroup="G")).code == ResponseCode.SUCCESS
    assert port.asked_names() == ["broker-a", "broker-b", "broker-c"]


def test_a_group_that_no_broker_knows(port: ClassicPort) -> None:
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    port.brokers.answer(
        code, lambda request: request.response(ResponseCode.CONSUMER_NOT_ONLINE, "not online")
    )
    answer = port.ask(classic_request(code, consumerGroup="G"))
    assert (answer.code, answer.remark) == (ResponseCode.CONSUMER_NOT_ONLINE, "not online")
    port.brokers.gone |= {"broker-a", "broker-b", "broker-c"}
    with refused(ResponseCode.SERVICE_NOT_AVAILABLE):
        port.ask(classic_request(code, consumerGroup="G"))
    with refused(ResponseCode.SYSTEM_ERROR) as caught:
        port.ask(classic_request(code))
    assert "consumerGroup" in caught.value.remark


QUESTIONS = [
    classic_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="G"),
    classic_request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="G"),
    classic_request(
        RequestCode.QUERY_ASSIGNMENT, encode_body(QueryAssignmentRequestBody(topic="T"))
    ),
    classic_request(
        RequestCode.CHECK_CLIENT_CONFIG,
        encode_body(CheckClientBody(subscription_data=SubscriptionData(topic="T"))),
    ),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: str(question.code))
def test_a_broker_that_hangs_is_asked_last(port: ClassicPort, question: RemotingCommand) -> None:
    """Clients wait 3 s for the answer."""

    def answer(request: RemotingCommand) -> RemotingCommand | Deferred[RemotingCommand]:
        (*_, asked) = port.brokers.asked
        if asked.broker_name != "broker-b":
            return request.response()
        assert asked.timeout is not None
        late: Deferred[RemotingCommand] = Deferred()
        error = RequestTimeout("b:1", request.code, asked.timeout)
        port.clock.callLater(asked.timeout, late.errback, error)
        return late

    port.brokers.answer(question.code, answer)
    subscribe(port)
    begun = port.clock.seconds()
    done = port.begin(question)
    port.clock.pump([0.5] * 4)
    assert done.result.code == ResponseCode.SUCCESS
    assert port.asked_names() == ["broker-b", "broker-c"]
    port.brokers.asked.clear()
    for _ in range(3):
        port.ask(question)
    assert port.asked_names() == ["broker-c"] * 3
    assert port.clock.seconds() - begun < 3
    port.clock.advance(AVOID_SECONDS)
    port.brokers.asked.clear()
    port.begin(question)
    assert port.asked_names() == ["broker-b"]


@pytest.mark.parametrize(
    ("seconds", "within"),
    [
        ({"broker-a": 1.25, "broker-b": 1.25, "broker-c": 1.25}, 1.25),
        ({"broker-a": 60, "broker-b": 60, "broker-c": 0.25}, 2.25),
        ({"broker-a": 60, "broker-b": 60, "broker-c": 60}, 3),
    ],
    ids=["all slow", "two hang", "all hang"],
)
def test_slow_brokers_answer_within_the_time_of_clients(
    port: ClassicPort, seconds: dict[str, float], within: float
) -> None:
    """The next one is asked after 1 s, and those before may answer still."""

    def answer(request: RemotingCommand) -> Deferred[RemotingCommand]:
        (*_, asked) = port.brokers.asked
        assert asked.timeout is not None
        late: Deferred[RemotingCommand] = Deferred()
        after = seconds[asked.broker_name]
        if after < asked.timeout:
            port.clock.callLater(after, late.callback, request.response())
        else:
            error = RequestTimeout("b:1", request.code, asked.timeout)
            port.clock.callLater(asked.timeout, late.errback, error)
        return late

    port.brokers.answer(QUESTIONS[0].code, answer)
    done = port.begin(QUESTIONS[0])
    port.clock.pump([0.25] * round(within * 4 - 1))
    assert not done.called
    port.clock.advance(0.25)
    assert done.called
    if within == 3:
        assert done.result.check(RequestError)
        done.addErrback(lambda _: None)
    port.clock.pump([0.25] * 40)
    assert not port.clock.getDelayedCalls()


def test_a_broker_that_asks_a_slow_client_is_not_left_early(port: ClassicPort) -> None:
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    port.brokers.answer(code, RequestTimeout("b:1", code, 3.0))
    subscribe(port)
    with refused(ResponseCode.SERVICE_NOT_AVAILABLE):
        port.ask(classic_request(code, consumerGroup="G"))
    assert [asked.timeout for asked in port.brokers.asked] == [3.0, 3.0]
    port.brokers.asked.clear()
    port.ask(QUESTIONS[0])
    assert port.asked_names() == ["broker-b"]


def told(port: ClassicPort, client_id: str, kind: str = REGISTER) -> None:
    """A proxy of stock's tells of a consumer."""
    wanted = SubscriptionData(topic="T", sub_string="*")
    record = ConsumerHeartbeat(
        heartbeat_type=kind,
        client_id=client_id,
        group="G",
        language="JAVA",
        version=475,
        last_update_timestamp=len(port.heartbeat_sync.members),
        subscription_data_set=msgspec.Raw(encode_body([wanted])),
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        local_proxy_id="10.0.0.5%8080%8081",
        channel_data=encode_body(ClientChannel(remote_address="10.0.0.8:1")).decode(),
    )
    port.heartbeat_sync.take(encode_body(record), 0.0)


def knows(port: ClassicPort, code: int, body: Body | None) -> None:
    """Brokers say `body`; nothing of the group where it is None."""
    port.brokers.answer(
        code,
        lambda request: (
            request.response(ResponseCode.CONSUMER_NOT_ONLINE, "not online")
            if body is None
            else request.response(body=encode_body(body))
        ),
    )


@pytest.mark.parametrize("known", [["a", "b"], [], None])
def test_members_at_stock_s_proxies_are_among_the_members(
    port: ClassicPort, known: list[str] | None
) -> None:
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    told(port, "x")
    told(port, "b")
    knows(port, code, None if known is None else ConsumerIdList(consumer_id_list=known))
    answer = port.ask(classic_request(code, consumerGroup="G"))
    ids = decode_body(ConsumerIdList, answer.body).consumer_id_list
    assert (answer.code, sorted(ids)) == (ResponseCode.SUCCESS, sorted({*(known or ()), "x", "b"}))


@pytest.mark.parametrize("is_known", [True, False])
def test_connections_at_stock_s_proxies_are_among_the_connections(
    port: ClassicPort, is_known: bool
) -> None:
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    told(port, "x")
    here = ConsumerConnection(
        connection_set=[Connection(client_id="a", client_addr="10.0.0.9:4")],
        subscription_table={"T": SubscriptionData(topic="T", sub_string="tag")},
        consume_type="CONSUME_ACTIVELY",
        message_model="CLUSTERING",
    )
    knows(port, code, here if is_known else None)
    answer = port.ask(classic_request(code, consumerGroup="G"))
    found = decode_body(ConsumerConnection, answer.body)
    by_id = {each.client_id: each for each in found.connection_set}
    assert by_id.keys() == ({"a", "x"} if is_known else {"x"})
    assert by_id["x"] == Connection(
        client_id="x", client_addr="10.0.0.8:1", language="JAVA", version=475
    )
    assert found.subscription_table["T"].sub_string == ("tag" if is_known else "*")
    assert found.consume_type == ("CONSUME_ACTIVELY" if is_known else "CONSUME_PASSIVELY")
    assert found.consume_from_where == "CONSUME_FROM_LAST_OFFSET"


def test_a_member_at_stock_s_proxy_is_not_asked_here(port: ClassicPort) -> None:
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    told(port, "x")
    knows(port, code, None)
    answer = port.ask(classic_request(code, consumerGroup="G", clientId="x"))
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert "x is at the proxy 10.0.0.5%8080%8081" in (answer.remark or "")
    answer = port.ask(classic_request(code, consumerGroup="G", clientId="other"))
    assert answer.remark == "not online"


def test_members_hear_of_those_at_stock_s_proxies_at_once(port: ClassicPort) -> None:
    """As brokers tell them (40): otherwise they would divide queues anew after 20 s."""
    subscribe(port)
    for client_id in ("x", "y"):
        told(port, client_id)
    port.clock.advance(1)
    (notice,) = port.peer.oneways
    assert notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert notice.ext_fields["consumerGroup"] == "G"
    told(port, "x")
    port.clock.advance(1)
    assert len(port.peer.oneways) == 1
    told(port, "x", UNREGISTER)
    port.clock.advance(1)
    assert len(port.peer.oneways) == 2


def test_a_check_of_a_subscription_and_an_assignment_are_a_broker_s(port: ClassicPort) -> None:
    check = CheckClientBody(client_id="c", subscription_data=SubscriptionData(topic="T"))
    port.ask(classic_request(RequestCode.CHECK_CLIENT_CONFIG, encode_body(check)))
    wanted = QueryAssignmentRequestBody(topic="T", consumer_group="G", client_id="c")
    port.ask(classic_request(RequestCode.QUERY_ASSIGNMENT, encode_body(wanted)))
    assert port.asked_names() == ["broker-b", "broker-b"]
    unknown = CheckClientBody(client_id="c", subscription_data=SubscriptionData(topic="New"))
    answer = port.ask(classic_request(RequestCode.CHECK_CLIENT_CONFIG, encode_body(unknown)))
    assert answer.code == ResponseCode.SUCCESS
    assert len(port.brokers.asked) == 2


def test_a_message_is_consumed_directly_from_the_broker_that_has_it(port: ClassicPort) -> None:
    port.brokers.routes["T"].broker_datas[1].broker_addrs[0] = "10.0.0.7:10911"
    fields = {"consumerGroup": "G", "clientId": "c"}
    at = offset_message_id("10.0.0.7", 10911, 5)
    port.ask(classic_request(RequestCode.CONSUME_MESSAGE_DIRECTLY, msgId=at, topic="T", **fields))
    port.ask(classic_request(RequestCode.CONSUME_MESSAGE_DIRECTLY, brokerName="broker-a", **fields))
    assert port.asked_names() == ["broker-c", "broker-a"]
    elsewhere = offset_message_id("10.0.0.6", 10911, 5)
    for message_id in (elsewhere, "x"):
        with refused(ResponseCode.SYSTEM_ERROR):
            port.ask(
                classic_request(RequestCode.CONSUME_MESSAGE_DIRECTLY, msgId=message_id, **fields)
            )


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    ],
)
def test_a_broker_asks_a_client_through_the_proxy(port: ClassicPort, code: int) -> None:
    client = port.requests.clients.of(port.peer)
    request = classic_request(code, b"body", consumerGroup="G")
    answer = client.ask(request, 3.0)
    ((sent, fire),) = port.peer.requests
    assert (sent.code, sent.body, sent.ext_fields) == (code, b"body", {"consumerGroup": "G"})
    assert sent.opaque != request.opaque
    fire.callback(sent.response(ResponseCode.SUCCESS, "done", body=b"state"))
    got = answer_of(answer)
    assert (got.opaque, got.remark, got.body) == (request.opaque, "done", b"state")


@pytest.mark.parametrize(
    "code", [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.RESET_CONSUMER_CLIENT_OFFSET]
)
def test_a_broker_notifies_a_client_through_the_proxy(port: ClassicPort, code: int) -> None:
    client = port.requests.clients.of(port.peer)
    answer_of(client.ask(classic_request(code, consumerGroup="G", oneway=True), 3.0))
    (sent,) = port.peer.oneways
    assert (sent.code, sent.is_oneway) == (code, True)


def test_a_client_that_does_not_answer(port: ClassicPort) -> None:
    client = port.requests.clients.of(port.peer)
    for error, code in (
        (RequestTimeout("c:1", 307, 3.0), ResponseCode.CONSUME_MSG_TIMEOUT),
        (ConnectionLost("c:1", "gone"), ResponseCode.SYSTEM_ERROR),
    ):
        answer = client.ask(classic_request(RequestCode.GET_CONSUMER_RUNNING_INFO), 3.0)
        port.peer.requests[-1][1].errback(error)
        with refused(code):
            answer_of(answer)


def test_clients_are_asked_nothing_else(port: ClassicPort) -> None:
    client = port.requests.clients.of(port.peer)
    with refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
        answer_of(client.ask(classic_request(RequestCode.UPDATE_BROKER_CONFIG), 3.0))
    assert not port.peer.requests
