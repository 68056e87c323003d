import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.admin.message_reading import Moment
from rocketmq_tw.client.admin import AdminClient
from rocketmq_tw.client.message import Message
from rocketmq_tw.client.preparing import MAX_MESSAGE_SIZE
from rocketmq_tw.client.producer import Producer
from rocketmq_tw.client.session import Session
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.unit.admin.conftest import World

#: More than a message takes.
TOO_LONG = b"x" * (MAX_MESSAGE_SIZE + 1)


def send(world, *arguments: str):
    return world.rmqadmin("sendMessage", "-t", "T", *arguments, "--output", "json").json


def read(world, *arguments: str):
    listed = world.rmqadmin("consumeMessage", "-t", "T", *arguments, "--output", "json").json
    return listed["messages"]


def bodies(world, *arguments: str) -> list[str]:
    return [message["body"] for message in read(world, *arguments)]


def test_a_message_comes_back_as_it_was_sent(world) -> None:
    sent = send(world, "-p", "Grüße 🚀", "-k", "k1 k2", "-c", "tag", "-b", "broker-a", "-i", "2")
    assert (sent["brokerName"], sent["queueId"], sent["queueOffset"]) == ("broker-a", 2, 0)
    assert sent["sendStatus"] == "SEND_OK"
    (message,) = read(world)
    assert message["messageId"] == sent["messageId"]
    assert message["offsetMessageId"] == sent["offsetMessageId"]
    assert (message["queueId"], message["queueOffset"]) == (2, 0)
    assert (message["tags"], message["keys"]) == ("tag", ["k1", "k2"])
    assert (message["body"], message["bodyBase64"]) == ("Grüße 🚀", None)
    assert message["storeTimestamp"] <= world.now_ms()
    line = world.rmqadmin("consumeMessage", "-t", "T").lines[2]
    assert line[:3] == ["broker-a", "2", "0"]
    assert line[-4:] == ["k1", "k2", "Grüße", "🚀"]


def test_the_queue_is_one_that_the_topic_has(world) -> None:
    world.rmqadmin("updateTopic -t T -c DefaultCluster -r 4 -w 4")
    outcome = world.rmqadmin("sendMessage -t T -p x -b broker-a -i 4")
    assert outcome.err == (
        "rmqadmin: topic T has no queue 4 of broker-a; it has: 0-3 of broker-a\n"
    )
    outcome = world.rmqadmin("consumeMessage -t T -b nix")
    assert outcome.err == "rmqadmin: topic T has no queue at nix; it has: 0-3 of broker-a\n"


def test_a_broker_alone_is_kept_to(world) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateTopic -t T -c DefaultCluster")
    sent = [send(world, "-p", str(number), "-b", "broker-b") for number in range(8)]
    assert {row["brokerName"] for row in sent} == {"broker-b"}
    assert read(world, "-b", "broker-a") == []
    assert sorted(bodies(world, "-b", "broker-b")) == [str(number) for number in range(8)]


def test_a_refusal_of_the_broker_is_told(world) -> None:
    world.rmqadmin("updateTopic -t T -c DefaultCluster -p 4")
    outcome = world.rmqadmin("sendMessage -t T -p x")
    assert outcome.status == 1
    assert "no broker with a master takes messages of T" in outcome.err


def test_an_illegal_or_empty_message_is_refused_here(world) -> None:
    assert "illegal character" in world.rmqadmin("sendMessage -t a/b -p x").err
    outcome = world.rmqadmin("sendMessage", "-t", "T", "-p", "")
    assert outcome.status != 0
    assert outcome.err.count("\n") == 1


def test_at_most_so_many_messages_from_an_offset_on(world) -> None:
    for number in range(70):
        send(world, "-p", str(number), "-b", "broker-a", "-i", "0")
        send(world, "-p", f"other-{number}", "-b", "broker-a", "-i", "1")
    numbers = [str(number) for number in range(70)]
    first = ("-b", "broker-a", "-i", "0")
    assert bodies(world, *first) == numbers
    assert bodies(world, *first, "-c", "5") == numbers[:5]
    assert bodies(world, *first, "-o", "40", "-c", "3") == numbers[40:43]
    assert bodies(world, *first, "-o", "70") == []
    assert len(bodies(world)) == 128
    assert bodies(world, "-c", "72")[68:] == ["68", "69", "other-0", "other-1"]


def test_messages_of_a_span_of_time(world) -> None:
    times = []
    for number in range(40):
        world.reactor.advance(10)
        send(world, "-p", str(number), "-b", "broker-a", "-i", "0")
        times.append(
            read(world, "-o", str(number), "-b", "broker-a", "-i", "0")[0]["storeTimestamp"]
        )
    assert bodies(world, "-s", str(times[30])) == [str(number) for number in range(30, 40)]
    assert bodies(world, "-s", str(times[30] + 1), "-c", "2") == ["31", "32"]
    assert bodies(world, "-e", str(times[2])) == ["0", "1", "2"]
    assert bodies(world, "-s", str(times[3] - 1), "-e", str(times[4] + 1)) == ["3", "4"]
    assert bodies(world, "-e", str(times[0] - 1)) == []


def test_a_time_to_come_is_an_end_as_with_mqadmin(world) -> None:
    world.rmqadmin("sendMessage -t T -p here -k key")
    later, last = "9999999999999", str(2**63 - 1)
    assert bodies(world, "-e", later) == ["here"] == bodies(world, "-e", last)
    assert bodies(world, "-s", last) == []
    for command in (
        f"printMsg -t T -e {later}",
        f"queryMsgByKey -t T -k key -e {later}",
    ):
        assert world.rmqadmin(command).status == 0, command
    outcome = world.rmqadmin(f"queryMsgByKey -t T -k key -b {later}")
    assert "no message of T has the key" in outcome.err


def test_a_local_time_is_read(world) -> None:
    moment = Moment().convert("2024-02-03#04:05:06:789", None, None)
    assert moment % 60_000 == 6_789


def test_a_body_that_is_no_text(world) -> None:
    session = Session(world.reactor, world.names, remoting=world.network.client())
    producer = Producer(world.reactor, world.names, "p", session=session)
    world.result(producer.send(Message("T", b"\xff\x00")))
    (message,) = read(world)
    assert (message["body"], message["bodyBase64"]) == (None, "/wA=")
    assert "(no text, see --output json)" in world.rmqadmin("consumeMessage", "-t", "T").out


def test_a_long_body_is_cut_in_the_table_only(world) -> None:
    send(world, "-p", "x" * 1000)
    assert bodies(world) == ["x" * 1000]
    out = world.rmqadmin("consumeMessage", "-t", "T").out
    assert "x" * 200 + "... (1000 characters)" in out
    assert "x" * 201 not in out
    assert out.splitlines()[-1] == "1 message"


def test_reading_consumes_nothing(world) -> None:
    send(world, "-p", "x")
    world.rmqadmin("updateSubGroup -g billing -c DefaultCluster")
    assert bodies(world, "-g", "billing") == ["x"]
    broker = world.brokers["broker-a"]
    assert broker.clients.consumer_group("billing") is None
    assert broker.offsets.topics_of("billing") == set()


@pytest.mark.parametrize("way", ["", "--dry-run", "--follow -c 1", "--follow --dry-run"])
def test_reading_makes_no_group(world, way: str) -> None:
    send(world, "-p", "x")
    world.rmqadmin("updateSubGroup -g billing -c DefaultCluster")
    groups = set(world.brokers["broker-a"].groups.all())
    for group, hint in (
        ("biling", "did you mean billing?"),
        ("other", "rmqadmin updateSubGroup -b 10.0.0.2:10911 -g other creates it"),
    ):
        outcome = world.rmqadmin(f"consumeMessage -t T -g {group} {way}")
        said = f"rmqadmin: broker 10.0.0.2:10911 has no group {group}: {hint}\n"
        assert (outcome.status, outcome.out, outcome.err) == (1, "", said)
    assert set(world.brokers["broker-a"].groups.all()) == groups


def test_a_broker_that_is_not_read_needs_no_group(world) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateTopic -t T -c DefaultCluster")
    world.rmqadmin("updateSubGroup -g billing -b 10.0.0.3:10911")
    assert bodies(world, "-g", "billing", "-b", "broker-b") == []
    outcome = world.rmqadmin("consumeMessage -t T -g billing")
    assert "broker 10.0.0.2:10911 has no group billing" in outcome.err


def test_a_topic_that_is_like_the_one_named_is_told(world) -> None:
    world.rmqadmin("updateTopic -t Orders -c DefaultCluster")
    for command in (
        "topicRoute -t orders",
        "topicStatus -t Order",
        "consumeMessage -t Ordrs",
        "printMsg -t order",
        "statsAll -t order",
        "consumerProgress -g G -t order",
        "queryMsgByKey -t order -k k",
    ):
        assert ": did you mean Orders?" in world.rmqadmin(command).err
    # Nobody means one of the cluster's own.
    for name in ("xyz", "RMQ_SYS_TRANS_HALF_TOPICS"):
        assert "topicList shows all" in world.rmqadmin(f"topicRoute -t {name}").err


def test_without_a_broker_nobody_is_told_to_look_for_topics(capsys) -> None:
    world = World(capsys)
    assert "start one" in world.rmqadmin("sendMessage -t Zed -p x").err
    for command in ("topicRoute -t Zed", "consumeMessage -t Zed", "consumerProgress -g G -t Zed"):
        assert ": no broker is registered: start one" in world.rmqadmin(command).err
    assert ": no broker is registered: start one" in world.rmqadmin("consumerProgress -g G").err


def test_a_body_comes_from_a_file_or_what_is_piped_in(world, tmp_path, monkeypatch) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"two\nlines\n")
    world.rmqadmin(f"sendMessage -t T --body-file {file}")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"piped")))
    world.rmqadmin("sendMessage -t T --body-file -")
    assert sorted(bodies(world)) == ["piped", "two\nlines\n"]


def test_each_line_of_a_file_becomes_a_message(world, tmp_path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\r\ntwo\nthree")
    outcome = world.rmqadmin(
        f"sendMessage -t T --body-file {file} --lines -b broker-a -i 1 -c tag -k k"
        " --property shop=7 --property text=a=b --output json"
    )
    sent = [json.loads(line) for line in outcome.out.splitlines()]
    assert [row["queueOffset"] for row in sent] == [0, 1, 2]
    found = read(world)
    assert [one["body"] for one in found] == ["one", "two", "three"]
    assert {(one["tags"], *one["keys"]) for one in found} == {("tag", "k")}
    assert {(one["properties"]["shop"], one["properties"]["text"]) for one in found} == {
        ("7", "a=b")
    }


def test_a_terminal_shows_how_many_lines_are_sent(world, tmp_path, stderr_terminal) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo\n12")
    stream = stderr_terminal()
    assert world.rmqadmin(f"sendMessage -t T --body-file {file} --lines").status == 0
    shown = "1 message sent, 40 %", "2 messages sent, 80 %", "3 messages sent, 100 %"
    assert stream.getvalue() == "".join(f"\r{text}\x1b[K\r\x1b[K" for text in shown)


def test_a_terminal_shows_how_many_lines_of_a_pipe_are_sent(
    world, monkeypatch, stderr_terminal
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\n" + TOO_LONG)))
    stream = stderr_terminal()
    assert world.rmqadmin("sendMessage -t T --body-file - --lines").status == 1
    # It is gone before the failure is told.
    begin, failure = stream.getvalue().split("rmqadmin: ")
    assert begin == "\r1 message sent\x1b[K\r\x1b[K"
    assert failure.startswith("line 2: ")


def test_a_body_does_not_come_from_a_closed_stdin(world, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    outcome = world.rmqadmin("sendMessage -t T --body-file -")
    assert (outcome.status, outcome.out) == (2, "")
    assert "--body-file -: nothing is piped in, stdin is closed" in outcome.err


def test_no_line_is_told(world, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    outcome = world.rmqadmin("sendMessage -t T --body-file - --lines")
    assert (outcome.status, outcome.out) == (0, "")
    assert outcome.err == "rmqadmin: what is piped in has no line: nothing is sent\n"


def test_a_time_and_a_message_group_are_properties_of_senders(world) -> None:
    for name in ("DELAY", "TIMER_DELAY_SEC", "__SHARDINGKEY"):
        assert world.rmqadmin(f"sendMessage -t T -p x --property {name}=1").status == 0


def test_a_line_that_cannot_be_sent_is_told_by_its_number(world, tmp_path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo\n" + TOO_LONG + b"\nfour\n")
    outcome = world.rmqadmin(f"sendMessage -t T --body-file {file} --lines")
    assert outcome.status == 1
    assert outcome.err.startswith("rmqadmin: line 3: ")
    assert outcome.err.endswith("; 2 lines before it are sent\n")
    assert sorted(bodies(world)) == ["one", "two"]
    file.write_bytes(TOO_LONG)
    outcome = world.rmqadmin(f"sendMessage -t T --body-file {file} --lines")
    assert outcome.err.endswith("; no line is sent\n")


def hang(request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
    return Deferred()


IN_DOUBT = "the message may have been stored: look for it before you send it again"


def hang_up(request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
    peer.lose_connection()
    return Deferred()


@pytest.mark.parametrize(
    ("answer", "why"), [(hang, "no answer to request 310"), (hang_up, "Connection")]
)
def test_a_message_without_an_answer_may_have_been_stored(
    world, tmp_path, answer: Handler, why: str
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo\n")
    (address,) = world.hosts
    world.let_answer(address, RequestCode.SEND_MESSAGE_V2, answer)
    for given, begin in ("-p x", ""), (f"--body-file {file} --lines", "line 1: "):
        outcome = world.rmqadmin(f"sendMessage -t T {given}")
        assert outcome.status == 1
        assert outcome.err.startswith(f"rmqadmin: {begin}{address}: {why}")
        assert outcome.err.endswith(f"; {IN_DOUBT}\n")


def test_a_line_without_an_answer_is_told_beside_those_that_are_sent(world, tmp_path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo\nthree\n")
    (address,) = world.hosts
    store = world.hosts[address].handlers[RequestCode.SEND_MESSAGE_V2]
    seen = []

    def answer_once(request: RemotingCommand, peer: IPeer) -> Any:
        seen.append(request)
        return store(request, peer) if len(seen) == 1 else Deferred()

    world.let_answer(address, RequestCode.SEND_MESSAGE_V2, answer_once)
    outcome = world.rmqadmin(f"sendMessage -t T --body-file {file} --lines")
    assert outcome.err.startswith("rmqadmin: line 2: ")
    assert outcome.err.endswith(f"; {IN_DOUBT}; 1 line before it sent\n")
    assert bodies(world) == ["one"]


def test_another_broker_is_named_where_one_gives_no_answer(world) -> None:
    (address,) = world.hosts
    world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateTopic -t T -c DefaultCluster")
    world.let_answer(address, RequestCode.SEND_MESSAGE_V2, hang)
    outcome = world.rmqadmin("sendMessage -t T -p x -b broker-a")
    assert outcome.err.endswith(f"{IN_DOUBT}; -b broker-b sends to another broker\n")
    assert world.rmqadmin("sendMessage -t T -p x -b broker-b").status == 0


def test_a_broker_that_may_not_be_written_to_is_told_of(world) -> None:
    world.rmqadmin("sendMessage -t T -p x")
    world.rmqadmin("wipeWritePerm -b broker-a --yes")
    outcome = world.rmqadmin("sendMessage -t T -p x -b broker-a")
    assert outcome.status == 1
    assert "rmqadmin addWritePerm -b broker-a" in outcome.err
    world.rmqadmin("addWritePerm -b broker-a")
    assert world.rmqadmin("sendMessage -t T -p x -b broker-a").status == 0


def test_empty_lines_are_passed_over_and_told(world, tmp_path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"\none\n\r\ntwo\n")
    outcome = world.rmqadmin(f"sendMessage -t T --body-file {file} --lines")
    assert outcome.status == 0
    assert outcome.err == "rmqadmin: 2 empty lines of 4 not sent\n"
    assert sorted(bodies(world)) == ["one", "two"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("", "give one of -p, the body, and --body-file"),
        ("-p x --body-file -", "give one of -p, the body, and --body-file"),
        ("-p x --lines", "--lines is about a file"),
        ("-p x --property x", "'x': give NAME=VALUE"),
        ("-p x --property a=1 --property a=2", "a is given twice"),
        ("-p x --property UNIQ_KEY=c", "UNIQ_KEY is set by clients and servers: take another"),
        ("-p x --property __transactionId__=c", "is set by clients and servers"),
        ("-p x --property TAGS=c", "TAGS: give -c"),
        ("-p x --property KEYS=c", "KEYS: give -k"),
        ("--body-file /no/file", "does not exist"),
    ],
)
def test_a_wrong_send_is_told(world, arguments: str, line: str) -> None:
    outcome = world.rmqadmin(f"sendMessage -t T {arguments}")
    assert outcome.status == 2
    assert line in outcome.err


def test_a_message_that_no_slave_has_is_a_failure(world) -> None:
    world.add_broker("broker-s", "10.0.0.4", store={"broker_role": "SYNC_MASTER"})
    world.rmqadmin("updateTopic -t S -b 10.0.0.4:10911")
    outcome = world.rmqadmin("sendMessage -t S -p x --output json")
    assert outcome.status == 1
    assert json.loads(outcome.out)["sendStatus"] == "SLAVE_NOT_AVAILABLE"
    assert "the message is stored, but there is no slave that has it" in outcome.err


def test_messages_are_shown_as_they_come(world) -> None:
    world.rmqadmin("updateTopic -t T -c DefaultCluster")
    send(world, "-p", "before")
    session = Session(world.reactor, world.names, remoting=world.network.client())
    producer = Producer(world.reactor, world.names, "p", session=session)
    for number in range(3):
        world.reactor.callLater(
            number + 0.2, lambda number=number: producer.send(Message("T", b"%d" % number))
        )
    outcome = world.rmqadmin("consumeMessage -t T --follow -c 3 --output json")
    assert [json.loads(line)["body"] for line in outcome.out.splitlines()] == ["0", "1", "2"]
    since = min(message["storeTimestamp"] for message in read(world))
    outcome = world.rmqadmin(f"consumeMessage -t T --follow -s {since} -c 4")
    assert len(outcome.out.splitlines()) == 4
    assert "leave -e out" in world.rmqadmin("consumeMessage -t T --follow -e 0").err


def late(world, seconds: float, work: Callable[[], Deferred[Any]]) -> None:
    """Does it while a command runs."""
    world.reactor.callLater(seconds, work)


def producer_of(world) -> Producer:
    session = Session(world.reactor, world.names, remoting=world.network.client())
    return Producer(world.reactor, world.names, "p", session=session)


def test_queues_and_brokers_that_come_later_are_followed(world, monkeypatch) -> None:
    monkeypatch.setattr("rocketmq_tw.admin.topic_tail.wall_clock_ms", world.now_ms)
    world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateTopic -t T -b 10.0.0.2:10911 -r 1 -w 1")
    admin = AdminClient(world.reactor, world.names, remoting=world.network.client())
    wide = TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)
    for address in world.hosts:
        late(world, 1, lambda address=address: admin.update_topic(address, wide))
    for name in world.brokers:
        queue = MessageQueue(topic="T", broker_name=name, queue_id=1)
        late(world, 2, lambda queue=queue: producer_of(world).send(Message("T", b"x"), queue=queue))
    outcome = world.rmqadmin(
        "consumeMessage -t T --follow -c 2 --format", "{broker} {queue} {body}"
    )
    assert sorted(outcome.out.splitlines()) == ["broker-a 1 x", "broker-b 1 x"]


def test_a_broker_that_was_away_shows_what_is_new(world, monkeypatch) -> None:
    """What it has of old is not shown when it is there again."""
    monkeypatch.setattr("rocketmq_tw.admin.topic_tail.wall_clock_ms", world.now_ms)
    world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateTopic -t T -c DefaultCluster -r 1 -w 1")
    send(world, "-p", "old", "-b", "broker-b", "-i", "0")
    world.reactor.advance(1)
    route = world.name_server.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC]
    begin = world.reactor.seconds()

    def without_b(request, peer):
        answer = route(request, peer)
        if world.reactor.seconds() < begin + 1:
            answer.body = answer.body.replace(b"broker-b", b"broker-a")
        return answer

    world.network.serve(
        world.names,
        {**world.name_server.handlers, RequestCode.GET_ROUTEINFO_BY_TOPIC: without_b},
    )
    queue = MessageQueue(topic="T", broker_name="broker-b", queue_id=0)
    late(world, 2, lambda: producer_of(world).send(Message("T", b"new"), queue=queue))
    outcome = world.rmqadmin("consumeMessage -t T --follow -c 1 --format", "{body}")
    assert outcome.out == "new\n"


def test_one_broker_that_is_down_keeps_no_other_from_being_followed(world) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateTopic -t T -c DefaultCluster -r 1 -w 1")
    world.network.stop("10.0.0.3:10911")
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
    late(world, 1, lambda: producer_of(world).send(Message("T", b"x"), queue=queue))
    outcome = world.rmqadmin("consumeMessage -t T --follow -c 1 --format", "{body}")
    assert outcome.out == "x\n"
    assert outcome.err.startswith("rmqadmin: 10.0.0.3:10911: ")


def test_a_plan_of_following_ends(world) -> None:
    world.rmqadmin("updateTopic -t T -c DefaultCluster -r 2 -w 2")
    send(world, "-p", "x", "-b", "broker-a", "-i", "1")
    outcome = world.rmqadmin("consumeMessage -t T --follow --dry-run")
    assert outcome.lines[2:] == [
        ["broker-a", "0", "0"],
        ["broker-a", "1", "1"],
        [
            "nothing",
            "is",
            "changed;",
            "messages",
            "of",
            "T",
            "would",
            "be",
            "shown",
            "from",
            "there",
            "on",
            "as",
            "they",
            "come",
        ],
    ]
    plan = world.rmqadmin("consumeMessage -t T --follow --dry-run --output json").json
    assert (plan["dryRun"], plan["complete"], plan["requests"]) == (True, True, [])


def test_a_line_for_each_message_as_a_template_has_it(world) -> None:
    sent = send(
        world, "-p", "a\x1b[2J\nb", "-k", "k1 k2", "-c", "tag", "-b", "broker-a", "-i", "2",
        "--property", "shop=7\t8",
    )  # fmt: skip
    for template, line in (
        ("{topic}/{queue}@{offset}", "T/2@0"),
        ("{{{tags}}}\t{keys}|{body}", "{tag}\tk1 k2|a\\x1b[2J\\nb"),
        ("{properties.shop}-{properties.none}-{retries}", "7\\t8--0"),
        ("{id} {offsetId}", f"{sent['messageId']} {sent['offsetMessageId']}"),
        ("no field", "no field"),
    ):
        assert world.rmqadmin("consumeMessage -t T --format", template).out == f"{line}\n"
    properties = json.loads(world.rmqadmin("consumeMessage -t T --format", "{properties}").out)
    assert properties["KEYS"] == "k1 k2"


def test_a_wrong_template_is_told_with_all_fields(world) -> None:
    for template, said in (
        ("{nix}", "{nix} is no field; there are: topic, broker, queue, offset, id,"),
        ("{}", "{} is no field"),
        ("{properties.}", "body, properties.NAME"),
        ("{body", "{ stands alone: {{ and }} are braces in the line"),
    ):
        outcome = world.rmqadmin("consumeMessage -t T --format", template)
        assert (outcome.status, outcome.out) == (2, "")
        assert said in outcome.err
    outcome = world.rmqadmin("consumeMessage -t T --format {body} --output json")
    assert "leave --output json out" in outcome.err
