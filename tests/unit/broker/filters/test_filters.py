"""Reads that are filtered by properties, and who may ask for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketmq_tw.broker.filters.part import Filters
from rocketmq_tw.config.change import change
from rocketmq_tw.message.batch import BatchedMessage, encode_batch
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.clients import CheckClientBody, ConsumeQueueBody, SubscriptionData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pull import QueryConsumeQueueRequestHeader
from tests.support.broker import BrokerInMemory, messages_of, ok
from tests.support.network import FakePeer

ENABLED = {"enable_property_filter": True}
FILE = "/store/config/consumerFilter.json"


def filled(count: int = 6, **settings: Any) -> BrokerInMemory:
    """A broker whose queue has messages with the property `a` of 0, 1, 2 …"""
    broker = BrokerInMemory(broker=ENABLED | settings.pop("broker", {}), **settings)
    broker.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    for number in range(count):
        ok(broker.send(b"%d" % number, properties={"a": str(number)}))
    return broker


def subscribe(broker: BrokerInMemory, text: str | None, version: int = 0, **fields: Any) -> None:
    given = {"topic": "Topic", "expression_type": "SQL92"} | fields
    broker.subscribe("G", broker.peer, sub_string=text, sub_version=version, **given)


def check(broker: BrokerInMemory, text: str | None, kind: str = "SQL92") -> RemotingCommand:
    data = SubscriptionData(topic="Topic", sub_string=text, expression_type=kind)
    body = encode_body(CheckClientBody(client_id="c", group="G", subscription_data=data))
    request = RemotingCommand.request(RequestCode.CHECK_CLIENT_CONFIG, body=body)
    response = broker.request(request)
    assert response is not None
    return response


def bodies(response: RemotingCommand | None) -> list[bytes]:
    ok(response)
    assert response is not None
    return [message.body for message in messages_of(response.body)]


def refusal(response: RemotingCommand | None) -> tuple[int, str]:
    assert response is not None and response.remark
    return response.code, response.remark


class TestChecks:
    @pytest.mark.parametrize("kind", ["TAG", ""])
    def test_tags_are_always_taken(self, kind: str) -> None:
        assert check(BrokerInMemory(), "a || b", kind).code == ResponseCode.SUCCESS

    def test_a_right_one(self) -> None:
        assert check(filled(0), "a > 5 AND b IS NULL").code == ResponseCode.SUCCESS

    @pytest.mark.parametrize(
        ("text", "kind", "words"),
        [
            ("a > 5 AND", "SQL92", "column 10: expected a property"),
            ("", "SQL92", "it is empty"),
            (None, "SQL92", "it is empty"),
            ("a", "JS", "JS expressions are unknown: use TAG or SQL92"),
        ],
    )
    def test_a_wrong_one(self, text: str | None, kind: str, words: str) -> None:
        code, remark = refusal(check(filled(0), text, kind))
        assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert words in remark

    def test_a_broker_that_does_not_filter(self) -> None:
        broker = BrokerInMemory()
        code, remark = refusal(check(broker, "a > 5"))
        assert code == ResponseCode.SYSTEM_ERROR
        assert "enablePropertyFilter" in remark
        change(broker.config, {"enablePropertyFilter": "true"})
        assert check(broker, "a > 5").code == ResponseCode.SUCCESS


class TestPullsOwnExpression:
    def test_what_matches_is_read(self) -> None:
        broker = filled()
        response = broker.pull(subscription="a BETWEEN 2 AND 4", expression_type="SQL92")
        assert bodies(response) == [b"2", b"3", b"4"]
        assert ok(response)["nextBeginOffset"] == "6"

    def test_nothing_matches(self) -> None:
        response = filled().pull(1, subscription="b = 'x'", expression_type="SQL92")
        assert refusal(response)[0] == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert response is not None and response.ext_fields["nextBeginOffset"] == "6"

    @pytest.mark.parametrize(
        ("text", "kind", "words"),
        [
            ("a >", "SQL92", "column 4: expected a property"),
            ("", "SQL92", "it is empty"),
            ("a = 1", "SQL", "SQL expressions are unknown"),
        ],
    )
    def test_a_wrong_one(self, text: str, kind: str, words: str) -> None:
        response = filled().pull(subscription=text, expression_type=kind)
        code, remark = refusal(response)
        assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert words in remark

    def test_a_broker_that_does_not_filter(self) -> None:
        broker = filled(broker={"enable_property_filter": False})
        code, _ = refusal(broker.pull(subscription="a > 1", expression_type="SQL92"))
        assert code == ResponseCode.SYSTEM_ERROR
        code, _ = refusal(broker.pull(subscription="a >", expression_type="SQL92"))
        assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


class TestSubscriptions:
    def test_what_matches_is_read(self) -> None:
        broker = filled()
        subscribe(broker, "a > 3")
        assert bodies(broker.pull(sys_flag=0)) == [b"4", b"5"]

    def test_a_wrong_one(self) -> None:
        broker = filled()
        subscribe(broker, "a > 'x'")
        code, remark = refusal(broker.pull(sys_flag=0))
        assert code == ResponseCode.FILTER_DATA_NOT_EXIST
        assert "column 5: expected a number" in remark

    def test_an_older_one(self) -> None:
        broker = filled()
        subscribe(broker, "a > 3", 7)
        known = broker.broker[Filters].table.get("Topic", "G")
        assert known is not None
        known.data.client_version = 6
        code, _ = refusal(broker.pull(sys_flag=0, sub_version=7))
        assert code == ResponseCode.FILTER_DATA_NOT_LATEST

    def test_a_broker_that_does_not_filter(self) -> None:
        broker = filled(broker={"enable_property_filter": False})
        subscribe(broker, "a > 3")
        assert refusal(broker.pull(sys_flag=0))[0] == ResponseCode.SYSTEM_ERROR

    def test_another_expression_takes_over(self) -> None:
        broker = filled()
        subscribe(broker, "a > 3", 1)
        subscribe(broker, "a < 1", 2)
        assert bodies(broker.pull(sys_flag=0, sub_version=2)) == [b"0"]
        subscribe(broker, "1", 3, expression_type="TAG")
        assert refusal(broker.pull(sys_flag=0))[0] == ResponseCode.PULL_RETRY_IMMEDIATELY

    def test_groups_do_not_share_one(self) -> None:
        broker = filled()
        subscribe(broker, "a > 3")
        broker.subscribe(
            "H", FakePeer(), topic="Topic", sub_string="a < 1", expression_type="SQL92"
        )
        assert bodies(broker.pull(sys_flag=0)) == [b"4", b"5"]
        assert bodies(broker.pull(sys_flag=0, consumer_group="H")) == [b"0"]


class TestRetries:
    RETRIES = "%RETRY%G"

    def given_back(self, **settings: Any) -> BrokerInMemory:
        """Two messages of `Topic`, which is filtered by `a`, wait in the group's retry topic."""
        broker = filled(0, **settings)
        broker.add_topic(self.RETRIES, read_queue_nums=1, write_queue_nums=1)
        for number in range(2):
            properties = {"RETRY_TOPIC": "Topic", "a": str(number)}
            ok(broker.send(b"%d" % number, topic=self.RETRIES, properties=properties))
        wanted = [("Topic", "a = 1"), (self.RETRIES, "a = 0")]
        data = [
            SubscriptionData(topic=topic, sub_string=text, expression_type="SQL92")
            for topic, text in wanted
        ]
        broker.heartbeat("c", broker.peer)
        broker.broker[Filters].table.subscribed("G", data)
        group = broker.clients.consumer_group("G")
        assert group is not None
        group.subscribe(data)
        return broker

    def test_they_are_asked_their_own_expression(self) -> None:
        broker = self.given_back()
        assert bodies(broker.pull(topic=self.RETRIES, sys_flag=0)) == [b"0"]

    def test_they_may_be_asked_their_topics(self) -> None:
        broker = self.given_back(broker={"filter_support_retry": True})
        assert bodies(broker.pull(topic=self.RETRIES, sys_flag=0)) == [b"1"]

    def test_of_a_topic_without_one_all_are_taken(self) -> None:
        broker = self.given_back(broker={"filter_support_retry": True})
        ok(broker.send(b"other", topic=self.RETRIES, properties={"RETRY_TOPIC": "Other"}))
        ok(broker.send(b"none", topic=self.RETRIES))
        read = broker.pull(topic=self.RETRIES, sys_flag=0)
        assert bodies(read) == [b"1", b"other", b"none"]


class TestHeldReads:
    def hold(self, broker: BrokerInMemory, suspend_ms: int = 20_000, **given: Any) -> FakePeer:
        """A consumer whose pull waits."""
        peer = FakePeer()
        request = broker.pull_request(suspend_ms=suspend_ms, **given)
        assert broker.request(request, peer) is None
        return peer

    @pytest.mark.parametrize("own", [True, False])
    def test_only_what_matches_wakes_one(self, own: bool) -> None:
        broker = filled(0)
        subscribe(broker, "a > 3")
        given = {"subscription": "a > 3", "expression_type": "SQL92"} if own else {"sys_flag": 0}
        peer = self.hold(broker, **given)
        for number in range(4):
            ok(broker.send(properties={"a": str(number)}))
        assert not peer.replies and len(broker.held_pulls) == 1
        ok(broker.send(b"4", properties={"a": "4"}))
        (response,) = peer.replies
        assert bodies(response) == [b"4"]
        assert response.ext_fields["nextBeginOffset"] == "5"

    def test_any_of_a_batch_wakes_one(self) -> None:
        broker = filled(0)
        wanted = {"subscription": "a = 2", "expression_type": "SQL92"}
        peer = self.hold(broker, **wanted)
        for numbers, woken in [((0, 1), False), ((1, 2, 3), True)]:
            batch = encode_batch(
                BatchedMessage(0, b"%d" % n, b"UNIQ_KEY\x01K%d\x02a\x01%d\x02" % (n, n))
                for n in numbers
            )
            ok(broker.send(batch, code=RequestCode.SEND_BATCH_MESSAGE, batch=True))
            assert bool(peer.replies) is woken
        assert bodies(peer.replies[0]) == [b"2"]

    def test_a_slow_one_is_woken_without_a_look(self) -> None:
        broker = filled(0)
        slow = " OR ".join(f"a = {n}" for n in range(2, 50))
        peer = self.hold(broker, subscription=slow, expression_type="SQL92")
        ok(broker.send(properties={"a": "1"}))
        (response,) = peer.replies
        assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert response.ext_fields["nextBeginOffset"] == "1"

    def test_time_ends_it_behind_what_did_not_match(self) -> None:
        broker = filled(0)
        wanted = {"subscription": "a > 3", "expression_type": "SQL92"}
        peer = self.hold(broker, 5_000, **wanted)
        ok(broker.send(properties={"a": "1"}))
        for _ in range(11):
            broker.clock.advance(1)
        (response,) = peer.replies
        assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert response.ext_fields["nextBeginOffset"] == "1"


class TestTheFile:
    def test_it_is_written_now_and_then_and_read_again(self) -> None:
        broker = filled()
        subscribe(broker, "a > 3")
        broker.clock.pump([1.0] * 11)
        kept = json.loads(broker.files.read(FILE))["filterDataByTopic"]
        assert kept["Topic"]["groupFilterData"]["G"]["expression"] == "a > 3"
        broker.stop()
        again = BrokerInMemory(broker.files, clock=broker.clock, broker=ENABLED)
        known = again.broker[Filters].table.get("Topic", "G")
        assert known is not None and known.data.dead_time
        subscribe(again, "a > 3")
        assert not known.data.dead_time

    def test_it_remembers_who_left_for_a_day(self) -> None:
        broker = filled()
        subscribe(broker, "a > 3")
        broker.peer.lose()
        broker.stop()
        kept = json.loads(broker.files.read(FILE))["filterDataByTopic"]
        assert kept["Topic"]["groupFilterData"]["G"]["dead"] is True
        later = BrokerInMemory(broker.files, clock=broker.clock, broker=ENABLED)
        later.shift_ms = 86_400_000
        later.stop()
        assert json.loads(later.files.read(FILE)) == {"filterDataByTopic": {}}


def test_units_of_a_queue_are_shown_with_the_filter() -> None:
    broker = filled()
    subscribe(broker, "a > 3", 5)
    header = QueryConsumeQueueRequestHeader(topic="Topic", queue_id=0, consumer_group="G", count=9)
    body = decode_body(ConsumeQueueBody, broker.ask(RequestCode.QUERY_CONSUME_QUEUE, header).body)
    assert body.filter_data is not None
    shown = json.loads(body.filter_data)
    assert (shown["expression"], shown["clientVersion"], shown["dead"]) == ("a > 3", 5, False)
