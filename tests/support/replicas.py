"""A master and its slaves as processes, the volumes they copy, and what their logs must share."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.fastjson import loads
from rocketmq_tw.wire.headers.topics import GetTopicStatsInfoRequestHeader
from tests.support.cluster import make_broker
from tests.support.load import encode_batch, send_request
from tests.support.ports import BrokerPorts
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.remoting import Connection, ask
from tests.support.running import Closing
from tests.support.wait import LIMIT, PeerFailed, wait_until

#: Seconds. A slave of 5.3.3 copies topics and offsets once a minute, and what its master has not
#: told it in 3 s it asks for a minute later.
COPY_LIMIT = 300.0
_PIECE = 1 << 20
_WINDOW = 8
_BATCH = 1 << 20


class Replicas(Closing):
    """One broker name: a master, and slaves with ids from 1 on; nothing is started yet.

    `ports` are the master's; `master_ha` replaces the HA address that slaves connect to (a
    proxy's); `make` makes the brokers as `make_broker` does.
    """

    def __init__(
        self,
        name: str,
        home: Path,
        name_servers: list[NameServerProcess],
        *,
        master: str,
        slaves: list[str],
        role: str = "ASYNC_MASTER",
        settings: dict[str, str] | None = None,
        master_ha: str | None = None,
        ports: BrokerPorts | None = None,
        make: Callable[..., BrokerProcess] = make_broker,
    ) -> None:
        common = dict(settings or {})
        self.master = make(
            master,
            name,
            home / "master",
            name_servers,
            ports=ports,
            settings={**common, "brokerRole": role},
        )
        follow = {} if master_ha is None else {"haMasterAddress": master_ha}
        self.slaves = [
            make(
                kind,
                name,
                home / f"slave{number}",
                name_servers,
                settings={
                    **common,
                    "brokerRole": "SLAVE",
                    "brokerId": str(number),
                    "slaveReadEnable": "true",
                    **follow,
                },
            )
            for number, kind in enumerate(slaves, 1)
        ]

    @property
    def slave(self) -> BrokerProcess:
        return self.slaves[0]

    def wait_equal(self, slave: BrokerProcess, limit: float = LIMIT) -> int:
        """Waits until a slave's log ends where the master's does, and returns where."""
        return wait_equal(self.master, slave, limit)

    def close(self) -> None:
        for broker in (*self.slaves, self.master):
            broker.close()


def wait_equal(master: BrokerProcess, slave: BrokerProcess, limit: float = LIMIT) -> int:
    """Waits until the logs of both end at the same place, and returns where."""

    def equal() -> int:
        end, copied = log_end(master), log_end(slave)
        if end > 0 and copied == end:
            return end
        raise PeerFailed(f"the master's log ends at {end}, the slave's at {copied}")

    return wait_until(equal, f"{slave.name}'s slave to have the whole log", limit=limit)


def log_end(broker: BrokerProcess) -> int:
    """Where the broker's log ends; -1 while it does not say."""
    return runtime_number(broker, "commitLogMaxOffset")


def runtime_number(broker: BrokerProcess, key: str) -> int:
    """A number of the broker's runtime info; -1 while it does not say, and where it has none."""
    response = ask(broker.address, RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO))
    if response.code != ResponseCode.SUCCESS:
        # Stock, while it starts.
        return -1
    return int(loads(response.body)["table"].get(key, -1))


def slaves_in_sync(broker: BrokerProcess) -> int:
    """How many slaves are linked with the broker and near its log's end."""
    request = RemotingCommand.request(RequestCode.GET_BROKER_HA_STATUS)
    return int(loads(ask(broker.address, request).body)["inSyncSlaveNums"])


def wait_topic(slave: BrokerProcess, topic: str) -> None:
    """Waits until the slave has copied the topic."""

    def has_topic() -> bool:
        # Of that one topic: with controllers a slave keeps its whole table to itself.
        request = RemotingCommand.request(
            RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic=topic)
        )
        return ask(slave.address, request).code == ResponseCode.SUCCESS

    wait_until(has_topic, f"{topic} at {slave.name}'s slave", limit=COPY_LIMIT)


def offsets_of(broker: BrokerProcess, topic: str, group: str) -> dict[int, int]:
    """The group's offsets as the broker has them, by queue."""
    request = RemotingCommand.request(RequestCode.GET_ALL_CONSUMER_OFFSET)
    table = loads(ask(broker.address, request).body)["offsetTable"]
    return {int(queue): offset for queue, offset in table.get(f"{topic}@{group}", {}).items()}


def log_digest(broker: BrokerProcess, start: int, end: int) -> str:
    """SHA-256 of the log's bytes from `start` to `end`."""
    digest = hashlib.sha256()
    for path in sorted((broker.store / "commitlog").iterdir()):
        first = int(path.name)
        with path.open("rb") as file:
            position = max(start, first)
            file.seek(position - first)
            while position < end:
                piece = file.read(min(_PIECE, end - position))
                if not piece:
                    break
                digest.update(piece)
                position += len(piece)
    return digest.hexdigest()


def send_volume(address: str, topic: str, size: int, *, body: int = 16384, queues: int = 4) -> int:
    """Sends `size` bytes of random bodies in batches of up to 1 MiB; returns the number of
    messages, all acknowledged."""
    dice = random.Random(size)
    messages = 0
    per_batch = max(_BATCH // (body + 64), 1)
    with Connection(address, timeout=60) as connection:
        waiting = 0
        for number in range(max(size // (per_batch * body), 1)):
            bodies = [dice.randbytes(body) for _ in range(per_batch)]
            connection.send(
                send_request(
                    topic, number % queues, encode_batch(bodies), batch=True, queues=queues
                )
            )
            messages += per_batch
            waiting += 1
            if waiting >= _WINDOW:
                _take(connection)
                waiting -= 1
        for _ in range(waiting):
            _take(connection)
    return messages


def _take(connection: Connection) -> None:
    response = connection.receive()
    if response.code != ResponseCode.SUCCESS:
        raise AssertionError(f"a batch was answered with {response.code}: {response.remark}")
