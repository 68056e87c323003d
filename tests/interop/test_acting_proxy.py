"""A proxy before a group whose slave acts for its master: its clients go on receiving."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import grpc

from rocketmq_tw.proxy.proto.messages import Code, MessageQueue
from tests.support.bare_grpc import BareClient
from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.proxies import OurProxy
from tests.support.remoting import committed_offset, create_topic
from tests.support.wait import wait_until

TOPIC, GROUP = "Orders", "orders"
QUEUES = 2
NAMES = {"supportActingMaster": "true", "scanNotActiveBrokerInterval": "1000"}
KEYS = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "brokerNotActiveTimeoutMillis": "3000",
    "totalReplicas": "2",
}
#: Longer than anything here takes: nothing comes again by itself.
INVISIBLE = 120


class Proxy(OurProxy):
    """One whose empty receives end soon."""

    def command(self) -> list[str]:
        words = super().command()
        poll = {"grpcClientConsumerMinLongPollingTimeoutMillis": 200}
        self.ports.write_config(self.home, self._name_server, **poll)
        return words


def broker(name: str, role: str, home: Path, names: NameServerProcess) -> BrokerProcess:
    number = "1" if role == "SLAVE" else "0"
    settings = KEYS | {"brokerId": number, "brokerRole": role}
    return make_broker(OURS, name, home / f"{name}{number}", [names], settings=settings)


class Consumer:
    """What a client has received and acknowledged of each group of brokers."""

    def __init__(self, client: BareClient) -> None:
        self._client = client
        self.done: list[str] = []
        self.done_at: dict[str, int] = {}

    def has(self, sent: set[str], *names: str) -> bool:
        """Receives from groups of brokers, each queue once, and acknowledges what comes; whether
        all of these have come by now."""
        try:
            for queue in self._client.queues(TOPIC):
                if sent and sent <= set(self.done):
                    break
                if queue.broker.name in names:
                    self._take(queue)
        except grpc.RpcError:
            return False
        return sent <= set(self.done)

    def _take(self, queue: MessageQueue) -> None:
        for message in self._client.receive(GROUP, queue, invisible=INVISIBLE):
            assert self._client.acknowledge(GROUP, message) == Code.OK
            self.done.append(message.body.decode())
            name = queue.broker.name
            self.done_at[name] = self.done_at.get(name, 0) + 1


def consumed(broker: BrokerProcess) -> list[int | None]:
    """How far the group is in each queue, as the broker has it."""
    return [committed_offset(broker.address, GROUP, TOPIC, number) for number in range(QUEUES)]


def test_what_a_dead_master_had_comes_from_its_slave_and_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        names = stack.enter_context(make_name_server(OURS, tmp_path / "names", NAMES))
        master, slave, other = (
            stack.enter_context(broker(name, role, tmp_path, names))
            for name, role in (("a", "SYNC_MASTER"), ("a", "SLAVE"), ("b", "ASYNC_MASTER"))
        )
        for each in (master, other):
            create_topic(each.address, TOPIC, QUEUES)
        wait_until(lambda: names.routes(TOPIC, [master, other]), "the route")
        proxy = stack.enter_context(Proxy(tmp_path / "proxy", names.address))
        client = stack.enter_context(BareClient(proxy.address, "consumer"))
        client.consume(GROUP, TOPIC)
        consumer = Consumer(client)

        def send(first: int, count: int) -> set[str]:
            """Sends to both groups by turns; a message that both replicas have is there."""
            bodies = {f"message {number}" for number in range(first, first + count)}
            for body in bodies:
                wait_until(lambda body=body: client.send(TOPIC, body).code == Code.OK, "the send")  # type: ignore[misc]
            return bodies

        # The slave has to hear of the topic, and the group to have begun, before messages come.
        consumer.has(set(), "a", "b")
        early = send(0, 8)
        wait_until(lambda: consumer.has(early, "a", "b"), "what the masters have", limit=60)
        # A slave copies its master's offsets each 5 s; what it has not copied comes again.
        wait_until(lambda: consumed(slave) == consumed(master), "the slave's copy", limit=60)
        waiting = send(100, 40)

        master.kill()
        wait_until(lambda: "it acts for the master" in slave.log_text(), "the slave to act")
        before = consumer.done_at["a"]
        wait_until(lambda: consumer.has(waiting, "a", "b"), "what the slave has", limit=120)
        assert consumer.done_at["a"] > before

        master.start()
        wait_until(lambda: "acts for the master no more" in slave.log_text(), "it to end that")
        late = send(200, 20)
        wait_until(lambda: consumer.has(late, "a", "b"), "what came since", limit=120)
        consumer.has(set(), "a", "b")
        assert len(consumer.done) == len(set(consumer.done))
