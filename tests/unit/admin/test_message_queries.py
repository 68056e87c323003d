"""Messages by key, id and offset, printed, traced; units of queues; times of sends."""

from __future__ import annotations

import io
import json

import pytest

from rocketmq_tw.client.message import Message
from rocketmq_tw.client.producer import Producer
from rocketmq_tw.client.session import Session
from rocketmq_tw.message.names import TRACE_TOPIC


def send(world, *arguments: str):
    return world.rmqadmin("sendMessage", "-t", "T", *arguments, "--output", "json").json


def produce(world, *messages: Message) -> None:
    session = Session(world.reactor, world.names, remoting=world.network.client())
    producer = Producer(world.reactor, world.names, "p", session=session)
    for message in messages:
        world.result(producer.send(message))


def messages(world, command: str):
    return world.rmqadmin(*command.split(), "--output", "json").json["messages"]


@pytest.fixture
def topic(world):
    """Two brokers with a topic of two queues each."""
    world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateTopic -t T -c DefaultCluster -r 2 -w 2")
    return world


def test_messages_with_a_key_come_from_all_brokers(topic) -> None:
    world = topic
    for number, broker in enumerate(("broker-a", "broker-b", "broker-a")):
        send(world, "-p", str(number), "-k", "same k2", "-b", broker, "-i", "0")
        world.reactor.advance(1)
    send(world, "-p", "other", "-k", "another")
    found = messages(world, "queryMsgByKey -t T -k same")
    assert [(one["body"], one["brokerName"]) for one in found] == [
        ("0", "broker-a"),
        ("1", "broker-b"),
        ("2", "broker-a"),
    ]
    assert len(messages(world, "queryMsgByKey -t T -k same -m 1")) == 2
    last = found[-1]["storeTimestamp"]
    assert [one["body"] for one in messages(world, f"queryMsgByKey -t T -k same -b {last}")] == [
        "2"
    ]
    outcome = world.rmqadmin("queryMsgByKey -t T -k nix")
    assert (outcome.status, outcome.err) == (
        1,
        "rmqadmin: no message of T has the key nix\n",
    )


def test_messages_are_looked_for_in_the_cluster_that_is_named_alone(topic) -> None:
    world = topic
    world.add_broker("broker-z", "10.0.0.9", broker_cluster_name="Other")
    world.rmqadmin("updateTopic -t T -c Other -r 1 -w 1")
    sent = send(world, "-p", "here", "-k", "same", "-b", "broker-a", "-i", "0")
    send(world, "-p", "there", "-k", "same", "-b", "broker-z", "-i", "0")
    for cluster, body in {"DefaultCluster": "here", "Other": "there"}.items():
        (found,) = messages(world, f"queryMsgByKey -t T -k same -c {cluster}")
        assert found["body"] == body
    for command in ("queryMsgByUniqueKey", "queryMsgById"):
        assert world.rmqadmin(f"{command} -t T -i {sent['messageId']} -c Other").status == 1
        outcome = world.rmqadmin(f"{command} -t T -i {sent['messageId']} -c Nix")
        assert outcome.err.startswith("rmqadmin: there is no cluster Nix; there are: ")


def test_both_kinds_of_id_find_a_message(topic) -> None:
    world = topic
    sent = send(world, "-p", "hello", "-b", "broker-b", "-i", "1")
    unique, offset = sent["messageId"], sent["offsetMessageId"]
    for command in (
        f"queryMsgByUniqueKey -t T -i {unique}",
        f"queryMsgByUniqueKey -t T -i {unique} -a",
        f"queryMsgById -t T -i {unique}",
        f"queryMsgById -t T -i {offset}",
        f"queryMsgById -i {offset}",
    ):
        (found,) = messages(world, command)
        assert (found["body"], found["messageId"], found["topic"]) == ("hello", unique, "T")
    assert (
        "if it is a unique id, give the topic too"
        in world.rmqadmin(f"queryMsgById -i {unique}").err
    )
    outcome = world.rmqadmin(f"queryMsgByUniqueKey -t T -i {'0' * 32}")
    assert outcome.err.endswith("no message of T has the unique id " + "0" * 32 + "\n")
    outcome = world.rmqadmin(f"queryMsgById -t T -i {'0' * 31}1")
    assert outcome.status == 1
    assert "which is no broker of this cluster" in outcome.err
    decoded = world.rmqadmin(f"decodeMessageId -i {offset} --output json").json
    assert decoded["address"] == "10.0.0.3:10911"
    assert "is no offset message id" in world.rmqadmin("decodeMessageId -i nix").err
    unique = world.rmqadmin("decodeMessageId -i 7F000001316A18B4AAC25B1C7D5A0000")
    assert unique.status == 2
    assert "is a unique id, which a client at 127.0.0.1 made" in unique.err


def test_a_member_consumes_a_message_once_more(topic) -> None:
    world = topic
    sent = send(world, "-p", "hello", "-b", "broker-b", "-i", "1")
    consumer = world.consume("billing", "T")
    for command, message_id in (
        ("queryMsgByUniqueKey", sent["messageId"]),
        ("queryMsgById", sent["messageId"]),
        ("queryMsgById", sent["offsetMessageId"]),
    ):
        outcome = world.rmqadmin(
            f"{command} -t T -i {message_id} -g billing -d 10.0.1.9@1 --output json"
        )
        assert outcome.json["result"] == "CR_SUCCESS"
    assert "-g and -d go together" in world.rmqadmin("queryMsgByUniqueKey -t T -i x -g G").err
    world.result(consumer.stop())


def test_the_message_at_an_offset(topic) -> None:
    world = topic
    for body in ("a", "b"):
        send(world, "-p", body, "-b", "broker-a", "-i", "1")
    (found,) = messages(world, "queryMsgByOffset -t T -b broker-a -i 1 -o 1")
    assert found["body"] == "b"
    outcome = world.rmqadmin("queryMsgByOffset -t T -b broker-a -i 1 -o 9")
    assert outcome.err == (
        "rmqadmin: there is no message at 9 of queue 1 of broker-a: it begins at 0,"
        " and 2 comes next\n"
    )
    assert (
        "topic T has no queue 7"
        in world.rmqadmin("queryMsgByOffset -t T -b broker-a -i 7 -o 0").err
    )
    assert (
        "'nix' is no charset"
        in world.rmqadmin("queryMsgByOffset -t T -b broker-a -i 1 -o 0 -f nix").err
    )


def test_all_messages_are_printed(topic) -> None:
    world = topic
    for number in range(40):
        tag = "even" if number % 2 == 0 else "odd"
        send(world, "-p", f"b{number}", "-c", tag, "-b", "broker-a", "-i", str(number % 2))
    send(world, "-p", "far", "-b", "broker-b", "-i", "0")

    def bodies(command: str) -> list[str]:
        out = world.rmqadmin(f"{command} --output json").out
        return [json.loads(line)["body"] for line in out.splitlines()]

    even = [f"b{number}" for number in range(0, 40, 2)]
    odd = [f"b{number}" for number in range(1, 40, 2)]
    assert bodies("printMsg -t T") == [*even, *odd, "far"]
    assert bodies("printMsg -t T -s odd") == odd
    assert bodies("printMsg -t T -s odd -d false") == [""] * 20
    assert bodies("printMsgByQueue -t T -a broker-a -i 0") == even
    assert bodies("printMsgByQueue -t T -a broker-a -i 0 -p false") == []
    line = world.rmqadmin("printMsg -t T").out.splitlines()[-1]
    assert line.startswith("broker-b  0  0  ")
    assert line.endswith("  far")
    counted = world.rmqadmin("printMsgByQueue -t T -a broker-a -i 1 -f true --output json").json
    assert counted == {"tags": [{"tag": "odd", "count": 20}]}
    assert "no name server knows the topic nix" in world.rmqadmin("printMsg -t nix").err


def shown_texts(stream: io.StringIO) -> list[str]:
    """What a line on stderr said one after the other; "" where it was taken away."""
    return [text.removesuffix("\x1b[K") for text in stream.getvalue().split("\r")[1:]]


def test_a_terminal_shows_how_far_the_counting_is(topic, stderr_terminal) -> None:
    world = topic
    for _ in range(100):
        send(world, "-p", "b", "-c", "tag", "-b", "broker-a", "-i", "1")
    stream = stderr_terminal()
    command = "printMsgByQueue -t T -a broker-a -i 1 -p false -f true --output json"
    assert world.rmqadmin(command).json == {"tags": [{"tag": "tag", "count": 100}]}
    # The broker gives ten at a time.
    counts = range(10, 101, 10)
    assert shown_texts(stream) == [*(f"{count} messages read, {count} %" for count in counts), ""]


def test_a_terminal_shows_how_far_the_reading_is_where_nothing_is_printed(
    topic, stderr_terminal
) -> None:
    world = topic
    for number in range(4):
        send(
            world,
            "-p",
            "b",
            "-c",
            "tag",
            "-b",
            f"broker-{'ab'[number // 2]}",
            "-i",
            str(number % 2),
        )
    stream = stderr_terminal()
    assert world.rmqadmin("printMsg -t T -s nix").out == ""
    assert shown_texts(stream) == [f"0 messages read, {part} %" for part in (25, 50, 75, 100)] + [
        ""
    ]


def test_each_printed_message_has_its_line_to_itself(topic, stderr_terminal) -> None:
    world = topic
    for _ in range(40):
        send(world, "-p", "b", "-b", "broker-a", "-i", "0")
    stream = stderr_terminal()
    assert len(world.rmqadmin("printMsg -t T").out.splitlines()) == 40
    assert shown_texts(stream)[:2] == ["10 messages read, 6 %", ""]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("checkMsgSendRT -t T -a 2", "1 of 2 messages"),
        ("clusterRT -a 2 --rounds 1", "1 of 2 messages"),
        ("consumerProgress", "1 of 2 groups"),
        ("startMonitoring --rounds 1", "1 of 2 groups"),
        ("exportMetrics -c DefaultCluster -f {directory}", "1 of 2 groups"),
        ("statsAll", "topics"),
        ("topicList -c", "topics"),
        ("health", "1 of 2 broker names"),
    ],
)
def test_a_terminal_shows_how_much_was_asked(
    topic, stderr_terminal, tmp_path, command: str, said: str
) -> None:
    world = topic
    for group in ("billing", "shipping"):
        world.rmqadmin(f"updateSubGroup -c DefaultCluster -g {group}")
    stream = stderr_terminal()
    assert world.rmqadmin(command.format(directory=tmp_path)).status == 0
    texts = shown_texts(stream)
    assert any(text.endswith(said) for text in texts)
    assert texts[-1] == ""


def test_a_failure_is_told_on_a_line_of_its_own(topic, stderr_terminal) -> None:
    world = topic
    for number in range(2):
        send(world, "-p", "b", "-b", "broker-a", "-i", str(number))
    world.network.stop("10.0.0.3:10911")
    stream = stderr_terminal()
    assert world.rmqadmin("printMsg -t T -s nix").status == 1
    assert shown_texts(stream)[-1].startswith("\x1b[Krmqadmin: ")


def test_units_of_a_queue(topic) -> None:
    world = topic
    for _ in range(3):
        send(world, "-p", "x", "-c", "tag", "-b", "broker-a", "-i", "1")
    found = world.rmqadmin("queryCq -t T -q 1 -i 1 -c 5 --output json").json
    assert [unit["index"] for unit in found["units"]] == [1, 2]
    assert (found["minIndex"], found["maxIndex"]) == (0, 3)
    assert found["address"] == "10.0.0.2:10911"
    assert all(unit["size"] > 0 and unit["tagsCode"] for unit in found["units"])
    lines = world.rmqadmin("queryCq -t T -q 1 -i 0 -b 10.0.0.2:10911").lines
    assert lines[-1] == ["the", "queue", "has", "units", "0", "to", "3"]
    assert "is no address" in world.rmqadmin("queryCq -t T -q 1 -i 0 -b nowhere").err


def test_who_sent_and_consumed_a_message(world) -> None:
    fields = {
        "sent": "Pub|1000|region|shop|T|ID1|tag|key|host|5|7|0|OFFSET|true",
        "other": "Pub|1000|region|shop|T|ID2|tag|key|host|5|7|0|OFFSET|true",
        "start": "SubBefore|2000|region|billing|request-1|ID1|0|key",
        "end": "SubAfter|request-1|ID1|3|false|key|1",
        "torn": "Pub|1000|region",
    }
    events = "".join(text.replace("|", "\x01") + "\x02" for text in fields.values())
    untraced = world.rmqadmin("queryMsgTraceById -i ID1").err
    assert f"there is no topic {TRACE_TOPIC}" in untraced and "traceTopicEnable=true" in untraced
    world.rmqadmin(f"updateTopic -t {TRACE_TOPIC} -c DefaultCluster")
    produce(world, Message(TRACE_TOPIC, events.encode(), keys=["ID1", "ID2"]))
    found = world.rmqadmin("queryMsgTraceById -i ID1 --output json").json["events"]
    assert [(one["type"], one["group"], one["milliseconds"], one["success"]) for one in found] == [
        ("Pub", "shop", 7, True),
        ("SubBefore", "billing", None, None),
        ("SubAfter", "billing", 3, False),
    ]
    assert found[2]["timestamp"] == 2000
    lines = world.rmqadmin("queryMsgTraceById -i ID1").lines
    assert [line[0] for line in lines[2:]] == ["Pub", "SubAfter"]
    assert "nobody traced the message ID3" in world.rmqadmin("queryMsgTraceById -i ID3").err


def test_how_long_sends_take(topic) -> None:
    world = topic
    found = world.rmqadmin("checkMsgSendRT -t T -a 4 -s 10 --output json").json
    assert {(row["brokerName"], row["queueId"]) for row in found["sends"]} == {
        (broker, queue) for broker in ("broker-a", "broker-b") for queue in (0, 1)
    }
    assert {row["sendStatus"] for row in found["sends"]} == {"SEND_OK"}
    assert found["average"] >= 0
    status = world.rmqadmin("sendMsgStatus -b broker-b -c 3").lines
    wrong = world.rmqadmin("sendMsgStatus -b broker-x")
    assert wrong.err == "rmqadmin: no broker is called broker-x; there are: broker-a, broker-b\n"
    assert "broker-x" not in world.rmqadmin("topicList").out
    assert [line[0] for line in status[2:5]] == ["broker-b"] * 3
    assert status[-1][0] == "average:"
    rounds = world.rmqadmin("clusterRT -a 3 --rounds 1 --output json").json["brokers"]
    assert [(row["brokerName"], row["sent"], row["failed"]) for row in rounds] == [
        ("broker-a", 3, 0),
        ("broker-b", 3, 0),
    ]
    log = world.rmqadmin("clusterRT -a 2 --rounds 1 -p true -m here -c DefaultCluster").out
    assert log.splitlines()[0].split("|")[1:4] == ["here", "DefaultCluster", "broker-a"]
    assert "there is no cluster nix" in world.rmqadmin("clusterRT -c nix --rounds 1").err


def test_sends_that_nobody_takes_are_a_failure(world) -> None:
    world.rmqadmin("updateTopic -t T -c DefaultCluster -p 4")
    outcome = world.rmqadmin("checkMsgSendRT -t T -a 2")
    assert outcome.status == 1
    assert "none of 2 messages was taken" in outcome.err
