"""Request-reply of stock's clients across two brokers: ours, and one of ours beside stock's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketmq_tw.wire.codes import ResponseCode
from tests.support.cluster import OURS, Cluster
from tests.support.jars import STOCK_VERSIONS
from tests.support.java_client import JavaClients, JavaError, Json
from tests.support.wait import wait_until

REPLY_TOPIC = "TestCluster_REPLY_TOPIC"
FEWEST_QUESTIONS = 8
#: Each thread of a stock client begins at a broker by chance, and each reply may have a new thread.
MOST_QUESTIONS = 80
#: Brokers of one cluster.
PAIRS = {"ours": [OURS, OURS], **{stock: [OURS, stock] for stock in STOCK_VERSIONS}}


@pytest.fixture(scope="module", params=PAIRS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("requests")
    with Cluster.numbered(home, PAIRS[request.param]) as started:
        (names,) = started.name_servers
        wait_until(lambda: names.routes(REPLY_TOPIC, started.brokers), "the replies' route")
        yield started


def test_replies_find_their_requester(java: JavaClients, pair: Cluster, names) -> None:
    """Whichever broker has the request, and whichever one the reply goes through."""
    topic = pair.create_topic(java, names.topic, queues=2)
    with (
        java.replier(pair.namesrv, names.group, topic) as replier,
        java.requester(pair.namesrv, names.group) as requester,
    ):
        asked: list[str] = []
        used: set[str] = set()
        for number in range(MOST_QUESTIONS):
            body = f"question {number}"
            broker = pair.brokers[number % 2].name
            asked.append(body)
            reply = requester.ask({"topic": topic, "body": body}, broker=broker)
            assert reply["body"] == f"re: {body}"
            assert reply["topic"] == REPLY_TOPIC
            assert reply["properties"]["MSG_TYPE"] == "reply"
            assert int(reply["properties"]["PUSH_REPLY_TIME"]) > 0
            wait_until(lambda: len(replier.replied()) == len(asked), "the replier's answer")
            used = {each["broker"] for each in replier.replied()}
            if len(asked) >= FEWEST_QUESTIONS and len(used) == len(pair.brokers):
                break
        assert {each["status"] for each in replier.replied()} == {"SEND_OK"}
        assert used == {broker.name for broker in pair.brokers}


def test_a_requester_that_one_broker_does_not_know(java: JavaClients, pair: Cluster, names) -> None:
    """A producer speaks only to brokers of its topics: the reply is tried through another one."""
    topic = pair.create_topic(java, names.topic, queues=1, brokers=pair.brokers[:1])
    with (
        java.replier(pair.namesrv, names.group, topic),
        java.requester(pair.namesrv, names.group) as requester,
    ):
        for number in range(4):
            reply = requester.ask({"topic": topic, "body": str(number)})
            assert reply["body"] == f"re: {number}"
        if java.version == "4.9.7":
            # 5.3.3's call returns as soon as the request is sent, whatever the broker.
            assert requester.ask({"topic": topic, "body": "x"}, blocking=True)["body"] == "re: x"


def test_nobody_to_reply_to(java: JavaClients, pair: Cluster, names) -> None:
    """The same code from every broker, and the reply is stored."""
    topic = pair.create_topic(java, names.topic, queues=1)
    with (
        java.puller(pair.namesrv) as puller,
        java.replier(pair.namesrv, names.group, topic) as replier,
        java.requester(pair.namesrv, names.group) as requester,
    ):
        with pytest.raises(JavaError, match="RequestTimeoutException"):
            requester.ask({"topic": names.topic, "body": "nobody reads this"}, 500)
        client = names.new("gone")
        answers: list[Json] = []

        def stored() -> list[str]:
            """The broker of each of the replies that are stored."""
            kept = puller.drain(REPLY_TOPIC)
            return [m["broker"] for m in kept if m["properties"].get("REPLY_TO_CLIENT") == client]

        def both_store() -> bool:
            if len(answers) < MOST_QUESTIONS:
                answers.append(replier.reply_to(client, REPLY_TOPIC))
            return set(stored()) == {broker.name for broker in pair.brokers}

        wait_until(both_store, "replies that both brokers store")
        assert all(answer.get("code") == ResponseCode.SYSTEM_ERROR for answer in answers), answers
        wait_until(lambda: len(stored()) == len(answers), "all of the replies")
