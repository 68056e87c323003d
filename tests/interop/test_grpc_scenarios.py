"""Stock's gRPC clients of four languages: all kinds of messages, consumers and filters, with our
proxy in the broker's process, before our broker and before stock's, and stock's proxy before ours;
classic clients of the same topics, and tools that ask about such clients.
"""

import base64
import random
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketmq_tw.wire.bodies.groups import GroupRetryPolicy
from tests.support.cluster import Cluster
from tests.support.downloads import DownloadFailed
from tests.support.grpc_clients import (
    go_program,
    java_program,
    node_program,
    python_program,
)
from tests.support.grpc_scenarios import (
    BROKER_SETTINGS,
    CUSTOMIZED,
    EXPONENTIAL,
    ScenarioProgram,
    Seen,
    Site,
)
from tests.support.java_client import JavaClients, Json, PushConsumer
from tests.support.ports import LOOPBACK
from tests.support.proxies import OurProxy, StandaloneWithProxy, StockProxy
from tests.support.wait import PeerFailed, wait_until

#: With the clients' preparation, where it was not done before.
pytestmark = pytest.mark.timeout(1800)

OLD, STOCK = "4.9.7", "5.3.3"
LARGE = 3 << 20
#: How classic producers pack bodies of more than 4 KiB; a message's flags have the number of that.
PACKED = {"LZ4": 1, "ZSTD": 2, "ZLIB": 3}
#: By name: the dense ones are not much smaller when they are packed.
BODIES = {
    "small": "compress me " * 400,
    "small-dense": base64.b64encode(random.Random(5).randbytes(3_750)).decode(),
    "large": "compress me " * 175_000,
    "large-dense": base64.b64encode(random.Random(2).randbytes(1_572_864)).decode(),
}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneWithProxy]:
    """Our name server and our broker with a proxy, in one process."""
    home = tmp_path_factory.mktemp("standalone")
    with StandaloneWithProxy(home, BROKER_SETTINGS) as server:
        yield server


@pytest.fixture(scope="module")
def local(standalone: StandaloneWithProxy) -> Site:
    return Site("local", standalone.address, standalone.name_server, standalone.broker_address)


@pytest.fixture(scope="module")
def before_ours(
    standalone: StandaloneWithProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("proxy")
    with OurProxy(home, standalone.name_server) as proxy:
        yield Site("cluster", proxy.address, standalone.name_server, standalone.broker_address)


@pytest.fixture(scope="module")
def before_stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("before-stock")
    with (
        Cluster.of(
            home, name_servers=[STOCK], brokers=[STOCK], settings=BROKER_SETTINGS
        ) as cluster,
        OurProxy(home / "proxy", cluster.namesrv) as proxy,
    ):
        yield Site("before-stock", proxy.address, cluster.namesrv, cluster.broker.address)


@pytest.fixture(scope="module")
def stock_before_ours(
    standalone: StandaloneWithProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("stock-proxy")
    with StockProxy(STOCK, home, standalone.name_server) as proxy:
        yield Site("stock", proxy.address, standalone.name_server, standalone.broker_address)


class Client(NamedTuple):
    """A stock client, and what it can."""

    start: Callable[[Path], ScenarioProgram]
    recalls: bool = True
    #: It holds back what follows a message of a group that failed.
    waits_in_order: bool = True
    #: One that it knows.
    retry_policy: GroupRetryPolicy = EXPONENTIAL


CLIENTS = {
    "java": Client(java_program),
    "nodejs": Client(node_program),
    "go": Client(go_program, recalls=False, waits_in_order=False),
    "python": Client(python_program, retry_policy=CUSTOMIZED),
}


@pytest.fixture(scope="module")
def programs(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], ScenarioProgram]]:
    """Starts a client's program at its first use."""
    started: dict[str, ScenarioProgram] = {}

    def program(language: str) -> ScenarioProgram:
        if language not in started:
            try:
                started[language] = CLIENTS[language].start(tmp_path_factory.mktemp(language))
            except DownloadFailed as error:
                pytest.skip(str(error))
        return started[language]

    yield program
    for each in started.values():
        each.close()


PLACES = ("local", "before_ours", "before_stock", "stock_before_ours")


@pytest.mark.parametrize(
    ("language", "place"),
    [
        # Stock's servers cost most, and stay to the end.
        *((language, place) for language in CLIENTS for place in PLACES[:2]),
        *(("java", place) for place in PLACES[2:]),
        *(
            pytest.param(language, place, marks=pytest.mark.more)
            for language in ("nodejs", "go", "python")
            for place in PLACES[2:]
        ),
    ],
)
def test_a_client_does_all_that_it_can(
    request: pytest.FixtureRequest,
    programs: Callable[[str], ScenarioProgram],
    language: str,
    place: str,
) -> None:
    program, site = programs(language), request.getfixturevalue(place)
    client, prefix = CLIENTS[language], f"{language}-{site.name}"
    site.prepare(prefix, retry_policy=client.retry_policy)
    seen = program.run(site.endpoint, prefix)
    check_none_failed(seen, program)
    check_filters_and_properties(seen)
    check_in_order(seen, client)
    check_times(seen, client)
    check_transactions(seen)
    check_mixed(seen)
    check_retries(seen)
    # "never", and of those in order "b-never".
    for scenario in ("push", "fifo"):
        site.wait_dead_letter(prefix, scenario)


def check_none_failed(seen: Seen, program: ScenarioProgram) -> None:
    failed = [(name, words) for name, each in seen.items() for words in each if "failed" in words]
    assert not failed, f"{failed}\n{program.log_tail()}"


# A machine that stands still for a while may see a message again.


def check_filters_and_properties(seen: Seen) -> None:
    tags = seen["tags"]
    ids = [words[1] for words in tags if words[0] == "sent"]
    assert {tuple(words[1:-1]) for words in tags if words[0] == "received"} == {
        (ids[0], "body wanted", "wanted", "k-1,k-2", "red"),
        (ids[2], "body also", "also", "k-1,k-2", "red"),
    }
    assert seen["sql"][0] == ["received", "red 20"]
    assert seen["large"][0] == ["same", str(LARGE)]


def check_in_order(seen: Seen, client: Client) -> None:
    """Of each group, the first time that each attempt was seen."""
    for group, expected in {
        "a": ["a-0 1", "a-1 1", "a-1 2", "a-2 1"],
        "b": ["b-never 1", "b-never 2", "b-next 1"],
    }.items():
        attempts = [f"{body} {number}" for _, each, body, number in seen["fifo"] if each == group]
        if not client.waits_in_order:
            expected = [each for each in expected if each.endswith(" 1")]
        assert [each for each in dict.fromkeys(attempts) if each in expected] == expected


def check_times(seen: Seen, client: Client) -> None:
    delays = seen["delay"]
    late = next(words for words in delays if words[0] == "received")
    assert late[1] == "late"
    # In ms; brokers round to a second.
    assert int(late[2]) > -1000
    assert (["recalled", "true"] in delays) == client.recalls
    # Until it was acknowledged.
    assert [words[:2] for words in seen["invisible"][:2]] == [["received", "shown again"]] * 2
    assert seen["invisible"][0][2] == "1"


def check_transactions(seen: Seen) -> None:
    transactions = seen["transaction"]
    received = {words[1] for words in transactions if words[0] == "received"}
    assert received == {"committed", "orphan"}
    assert ["asked", "orphan"] in transactions


def check_mixed(seen: Seen) -> None:
    received = {body: (group, int(late)) for _, body, group, late in seen["mixed"]}
    assert {body: group for body, (group, _) in received.items()} == {
        "plain": "-",
        "in order": "group",
        "late": "-",
        "committed": "-",
    }
    # In ms; brokers round to a second.
    assert received["late"][1] > -1000


def check_retries(seen: Seen) -> None:
    attempts = {f"{body} {number}" for _, body, number in seen["push"]}
    assert attempts >= {"good 1", "once 1", "once 2", "never 1", "never 2"}
    assert "never 3" not in attempts


@pytest.mark.parametrize(
    ("language", "place"),
    [
        *((language, "before_ours") for language in ("java", "nodejs", "python")),
        ("java", "local"),
        ("nodejs", "local"),
        ("java", "before_stock"),
        pytest.param("nodejs", "before_stock", marks=pytest.mark.more),
    ],
)
def test_bodies_that_classic_producers_packed(
    request: pytest.FixtureRequest,
    programs: Callable[[str], ScenarioProgram],
    jvms: dict[str, JavaClients],
    language: str,
    place: str,
) -> None:
    program, site = programs(language), request.getfixturevalue(place)
    prefix = f"{language}-{site.name}"
    site.prepare(prefix, ["from-classic"])
    topic = f"{prefix}-from-classic"
    messages: dict[str, Json] = {
        f"{packed}-{name}": {
            "topic": topic,
            "body": body,
            "tags": f"{packed}-{name}",
            "keys": "k",
            "properties": {"of": str(len(PACKED) * len(BODIES))},
        }
        for packed in PACKED
        for name, body in BODIES.items()
    }
    ids = {}
    for packed in PACKED:
        with jvms[STOCK].producer(site.name_server, compressType=packed) as producer:
            for name in BODIES:
                tag = f"{packed}-{name}"
                (sent,) = producer.send(messages[tag])
                ids[tag] = sent["msgId"]
    seen = program.run(site.endpoint, prefix, ["from-classic"])
    check_none_failed(seen, program)
    assert {tuple(words[1:]) for words in seen["from-classic"]} == {
        (ids[tag], tag, "k", str(len(message["body"])), str(zlib.crc32(message["body"].encode())))
        for tag, message in messages.items()
    }
    # They were packed so.
    with jvms[STOCK].puller(site.name_server) as puller:
        stored = puller.drain(topic)
    kinds = {message["tags"]: message["sysFlag"] >> 8 & 7 for message in stored}
    assert kinds == {tag: PACKED[tag.split("-")[0]] for tag in messages}


@pytest.mark.parametrize("place", ["before_ours", "local", "before_stock"])
def test_classic_consumers_get_what_grpc_producers_send(
    request: pytest.FixtureRequest,
    programs: Callable[[str], ScenarioProgram],
    jvms: dict[str, JavaClients],
    place: str,
) -> None:
    program, site = programs("java"), request.getfixturevalue(place)
    prefix = f"classic-{site.name}"
    scenarios = ["to-classic", "mixed"]
    site.prepare(prefix, scenarios)
    seen = program.run(site.endpoint, prefix, scenarios)
    check_none_failed(seen, program)
    check_mixed(seen)
    sent = {tuple(words[1:]) for words in seen["to-classic"]}
    topics = [f"{prefix}-{scenario}" for scenario in scenarios]
    for version in (OLD, STOCK):
        group = f"{prefix}-{version}".replace(".", "-")
        with jvms[version].consumer(
            site.name_server, group, dict.fromkeys(topics, "*")
        ) as consumer:

            def all_of_them(consumer: PushConsumer = consumer) -> list[Json]:
                # A broker that asks about a transaction again may commit it twice.
                received = {message["msgId"]: message for message in consumer.received()}
                return list(received.values()) if len(received) == len(sent) + 4 else []

            received = wait_until(all_of_them, f"all messages at {version}")
        plain = [message for message in received if message["topic"] == topics[0]]
        assert {
            (message["msgId"], str(message["size"]), str(message["crc"])) for message in plain
        } == sent
        for message in plain:
            assert message["tags"] == f"tag-{message['size']}"
            assert message["keys"] == "k-1 k-2"
            assert message["properties"]["color"] == "red"
        mixed = {message.get("body") for message in received if message["topic"] == topics[1]}
        assert mixed == {"plain", "in order", "late", "committed"}


@pytest.mark.parametrize("place", ["before_ours", "local", "before_stock"])
def test_tools_see_and_ask_a_consumer(
    request: pytest.FixtureRequest,
    programs: Callable[[str], ScenarioProgram],
    jvms: dict[str, JavaClients],
    place: str,
) -> None:
    """Stock's mqadmin, which asks the broker."""
    program, site = programs("java"), request.getfixturevalue(place)
    prefix = f"tools-{site.name}"
    site.prepare(prefix, ["asked"])
    seen = program.run(site.endpoint, prefix, ["asked"])
    check_none_failed(seen, program)
    group = topic = f"{prefix}-asked"

    def tool(expected: str, name: str, *arguments: str) -> str:
        """What a tool prints, once it has the expected words."""

        def printed() -> str:
            said = jvms[STOCK].mqadmin(name, "-n", site.name_server, "-g", group, *arguments)
            if expected not in said:
                raise PeerFailed(said)
            return said

        return wait_until(printed, f"{expected} by mqadmin {name}", interval=0.5)

    connections = tool("MessageModel: CLUSTERING", "consumerConnection")
    # The client's id, the address that it came from, its language.
    (client_id,) = re.findall(rf"^(\S+) +{LOOPBACK}:\d+ +JAVA ", connections, re.M)
    assert re.search(rf"^{topic} +\*", connections, re.M)
    # A stack of each thread, some of which are the client's own.
    own = "org.apache.rocketmq.client.java."
    assert topic in tool(own, "consumerStatus", "-i", client_id, "-s")
    progress = tool("Consume Diff Total: 0", "consumerProgress")
    assert re.search(rf"^{topic} ", progress, re.M)
    ids = {body: message_id for _, body, message_id in seen["asked"]}
    for body, result in (("always", "CR_SUCCESS"), ("once", "CR_LATER")):
        # The consumer is given the message once more, and says what became of it.
        asked = ("-t", topic, "-i", ids[body], "-d", client_id)
        tool(f"consumeResult={result}", "queryMsgByUniqueKey", *asked)
