"""Stock's gRPC clients of four languages: all kinds of messages, consumers and filters, with our
proxy in the broker's process, before our broker and before stock's, and stock's proxy before ours.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.cluster import Cluster
from tests.support.downloads import DownloadFailed
from tests.support.grpc_clients import (
    go_program,
    java_program,
    node_program,
    python_client,
    send_and_receive,
)
from tests.support.grpc_scenarios import BROKER_SETTINGS, ScenarioProgram, Seen, Site
from tests.support.proxies import OurProxy, StandaloneWithProxy, StockProxy

#: With the clients' preparation, where it was not done before.
pytestmark = pytest.mark.timeout(1800)

STOCK = "5.3.3"
LARGE = 3 << 20


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
    recalls: bool
    #: It holds back what follows a message of a group that failed.
    waits_in_order: bool


CLIENTS = {
    "java": Client(java_program, recalls=True, waits_in_order=True),
    "nodejs": Client(node_program, recalls=True, waits_in_order=True),
    "go": Client(go_program, recalls=False, waits_in_order=False),
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
            for language in ("nodejs", "go")
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
    site.prepare(prefix)
    seen = program.run(site.endpoint, prefix)
    failed = [(name, words) for name, each in seen.items() for words in each if "failed" in words]
    assert not failed, f"{failed}\n{program.log_tail()}"
    check_filters_and_properties(seen)
    check_in_order(seen, client)
    check_times(seen, client)
    check_transactions(seen)
    check_retries(seen)
    # "never", and of those in order "b-never".
    for scenario in ("push", "fifo"):
        site.wait_dead_letter(prefix, scenario)


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


def check_retries(seen: Seen) -> None:
    attempts = {f"{body} {number}" for _, body, number in seen["push"]}
    assert attempts >= {"good 1", "once 1", "once 2", "never 1", "never 2"}
    assert "never 3" not in attempts


@pytest.mark.parametrize("place", ["before_stock", "stock_before_ours"])
def test_the_python_client_with_one_side_stock(request: pytest.FixtureRequest, place: str) -> None:
    try:
        python_client()
    except DownloadFailed as error:
        pytest.skip(str(error))
    site = request.getfixturevalue(place)
    prefix = f"python-{site.name}"
    site.prepare(prefix)
    result = send_and_receive(site.endpoint, f"{prefix}-tags", f"{prefix}-tags", 10)
    assert sorted(message["id"] for message in result["received"]) == sorted(result["sent"])
