"""Stock's gRPC clients with proxies of ours, in the broker's process and before it."""

from collections.abc import Iterator

import pytest

from tests.support.grpc_clients import send_and_receive
from tests.support.proxies import OurProxy, StandaloneWithProxy
from tests.support.rmqadmin import rmqadmin
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneWithProxy]:
    """A name server and a broker with a proxy, in one process."""
    with StandaloneWithProxy(tmp_path_factory.mktemp("standalone")) as server:
        yield server


@pytest.fixture(scope="module", params=["local", "cluster"])
def proxy(
    request: pytest.FixtureRequest,
    standalone: StandaloneWithProxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OurProxy]:
    if request.param == "local":
        yield standalone
        return
    with OurProxy(tmp_path_factory.mktemp("proxy"), standalone.name_server) as server:
        yield server


@pytest.mark.timeout(1800)
def test_the_python_client_sends_receives_and_acknowledges(
    standalone: StandaloneWithProxy, proxy: OurProxy, names
) -> None:
    topic, group = names.topic, names.group

    def make_topic() -> bool:
        made = rmqadmin(standalone.name_server, f"updateTopic -c DefaultCluster -t {topic}")
        return not made.returncode

    wait_until(make_topic, "the topic")
    result = send_and_receive(proxy.address, topic, group, 20)
    received = result["received"]
    assert sorted(message["id"] for message in received) == sorted(result["sent"])
    assert sorted(message["body"] for message in received) == sorted(
        f"message {number}" for number in range(20)
    )
    for message in received:
        assert message["tag"] == "tag"
        assert message["keys"] == [f"key-{message['index']}"]
    again = send_and_receive(proxy.address, topic, group, 1)
    # What was acknowledged does not come again.
    assert [message["id"] for message in again["received"]] == again["sent"]
