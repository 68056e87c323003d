"""Which redirect takes a special message, and what is refused where none may."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.writing.redirects import (
    Draft,
    PropertyRedirect,
    Redirects,
    Stage,
    TopicRedirect,
    reject_transactions,
)
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.change import change
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import BrokerInMemory, ok
from tests.support.stores import make_message


class Features:
    """A table whose redirects note that they were asked."""

    def __init__(self) -> None:
        self.redirects = Redirects()
        self.asked: list[str] = []

    def property(self, stage: Stage, *properties: str, takes: bool = False) -> None:
        def redirect(draft: Draft) -> bool:
            self.asked.append(stage.name)
            return takes

        self.redirects.by_property(stage, properties, redirect)

    def topic(self, prefix: str) -> None:
        def redirect(draft: Draft) -> None:
            self.asked.append(f"{prefix} {draft.message.topic} {draft.retry_limit}")

        self.redirects.by_topic(prefix, redirect)

    def route(self, topic: str = "Topic") -> list[str]:
        """Who was asked about one message, in order."""
        self.asked.clear()
        properties = dict.fromkeys(self.redirects.properties, "1")
        draft = Draft(make_message(topic=topic), properties, retry_limit=7)
        self.redirects.route_by_topic(draft)
        self.redirects.route_by_property(draft)
        return list(self.asked)


def test_stages_are_asked_in_their_order_whoever_came_first() -> None:
    features = Features()
    for stage in reversed(Stage):
        features.property(stage, stage.name)
    assert features.route() == [
        "REJECTION",
        "TRANSACTION",
        "DELAY_LEVEL",
        "TIMER",
    ]


def test_behind_the_one_that_takes_the_message_nobody_is_asked() -> None:
    features = Features()
    features.property(Stage.TIMER, "t")
    features.property(Stage.DELAY_LEVEL, "d", takes=True)
    features.property(Stage.TRANSACTION, "p")
    assert features.route() == ["TRANSACTION", "DELAY_LEVEL"]


def test_one_prefix_is_asked_and_only_about_its_topics() -> None:
    features = Features()
    features.topic("%RETRY%")
    features.topic("lmq_")
    assert features.redirects.prefixes == ("%RETRY%", "lmq_")
    assert features.route("%RETRY%G") == ["%RETRY% %RETRY%G 7"]
    assert features.route("lmq_%RETRY%") == ["lmq_ lmq_%RETRY% 7"]
    assert features.route("Topic") == features.route("RETRY%") == []


def test_only_who_named_one_of_its_properties_is_asked() -> None:
    features = Features()
    features.property(Stage.DELAY_LEVEL, "a", "b")
    features.property(Stage.TIMER, "b", "c")
    for given, asked in (
        ({"a"}, ["DELAY_LEVEL"]),
        ({"b", "x"}, ["DELAY_LEVEL", "TIMER"]),
        ({"c"}, ["TIMER"]),
        ({"x"}, []),
    ):
        features.asked.clear()
        features.redirects.route_by_property(Draft(make_message(), dict.fromkeys(given, "1")))
        assert features.asked == asked


def test_what_is_special_follows_what_is_registered() -> None:
    features = Features()
    assert features.redirects.properties == frozenset()
    features.property(Stage.TIMER, "a", "b")
    features.property(Stage.DELAY_LEVEL, "b", "c")
    features.topic("%RETRY%")
    assert features.redirects.properties == {"a", "b", "c"}
    assert features.redirects.prefixes == ("%RETRY%",)


def test_there_is_one_redirect_for_each_stage_and_prefix() -> None:
    features = Features()
    features.property(Stage.TIMER, "a")
    features.topic("%RETRY%")
    with pytest.raises(ValueError, match="TIMER already"):
        features.property(Stage.TIMER, "b")
    with pytest.raises(ValueError, match="%RETRY% already"):
        features.topic("%RETRY%")
    assert features.redirects.properties == {"a"}
    assert features.route("%RETRY%G") == ["%RETRY% %RETRY%G 7", "TIMER"]


def take(draft: Draft) -> bool:
    return True


def code_of(redirects: Redirects, message: StoredMessage, **properties: str) -> int:
    """What a message with these properties is refused with; 0 where it is not."""
    assert not redirects.properties.isdisjoint(properties)
    try:
        redirects.route_by_property(Draft(message, properties))
    except RequestError as error:
        return error.code
    return 0


def rejecting(config: BrokerConfig) -> Redirects:
    redirects = Redirects()
    redirects.by_property(Stage.REJECTION, ("TRAN_MSG",), reject_transactions(config))
    return redirects


def test_what_waits_for_its_next_try_is_no_half_message() -> None:
    redirects = rejecting(BrokerConfig(reject_transaction_message=True))
    message = make_message()
    assert code_of(redirects, message, TRAN_MSG="true", DELAY="3") == ResponseCode.NO_PERMISSION
    message.reconsume_times = 1
    assert code_of(redirects, message, TRAN_MSG="true", DELAY="3") == 0
    assert code_of(redirects, message, TRAN_MSG="true") == ResponseCode.NO_PERMISSION


def test_the_configuration_may_reject_what_a_feature_would_take() -> None:
    config = BrokerConfig()
    redirects = rejecting(config)
    redirects.by_property(Stage.TRANSACTION, ("TRAN_MSG",), take)
    for value, code in (("true", ResponseCode.NO_PERMISSION), ("false", 0)):
        change(config, {"rejectTransactionMessage": value})
        assert code_of(redirects, make_message(), TRAN_MSG="true") == code


def test_a_feature_of_its_own_changes_where_sends_go() -> None:
    def wait(draft: Draft) -> bool:
        draft.properties["WHERE"] = draft.message.topic
        draft.message.topic, draft.message.queue_id = "Waiting", 5
        return True

    def escape(draft: Draft) -> None:
        draft.message.topic = "Away"

    by_property: PropertyRedirect = wait
    by_topic: TopicRedirect = escape
    broker = BrokerInMemory()
    broker.add_topic("lmq_1", read_queue_nums=1, write_queue_nums=1)
    broker.redirects.by_property(max(Stage) + 1, ("WAITS",), by_property)
    broker.redirects.by_topic("lmq_", by_topic)
    assert ok(broker.send(b"a", queue_id=2, properties={"WAITS": "yes"}))["queueId"] == "2"
    ok(broker.send(b"b", topic="lmq_1"))
    ok(broker.send(b"c", queue_id=2))
    assert [message.body for message in broker.consume("Waiting", 5)] == [b"a"]
    assert [message.body for message in broker.consume("Away")] == [b"b"]
    assert [message.body for message in broker.consume("Topic", 2)] == [b"c"]
    assert broker.consume("lmq_1") == []


def test_a_batch_is_no_half_of_a_transaction() -> None:
    asked = {"TRAN_MSG": "true"}
    single, batch = (Draft(make_message(), dict(asked), is_batch=each) for each in (False, True))
    assert single.wants_transaction and not batch.wants_transaction


def test_the_bytes_of_properties_are_written_once_all_is_said() -> None:
    message = make_message()
    before = message.properties
    draft = Draft(message, {"a": "1"})
    draft.properties["b"] = "2"
    assert message.properties == before
    message.parsed = {}
    draft.write_properties()
    assert (message.properties, message.parsed) == (b"a\x011\x02b\x012\x02", None)
