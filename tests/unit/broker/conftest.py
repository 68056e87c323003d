"""A broker in memory for tests of one request after the other."""

import pytest

from rocketmq_tw.broker.cluster.part import RETRY_SECONDS
from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory

NAME_SERVER = "10.0.0.1:9876"


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def plane(files: FaultyFiles, request: pytest.FixtureRequest) -> BrokerInMemory:
    is_registered = "registrations" in request.fixturenames
    made = BrokerInMemory(files, broker={"namesrv_addr": NAME_SERVER} if is_registered else {})
    made.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
    return made


@pytest.fixture
def registrations(plane: BrokerInMemory) -> list[RemotingCommand]:
    """What the broker tells its name server from now on."""
    told: list[RemotingCommand] = []

    def register(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        told.append(request)
        return request.response()

    plane.network.serve(NAME_SERVER, {RequestCode.REGISTER_BROKER: register})
    plane.clock.advance(RETRY_SECONDS)
    plane.network.settle()
    told.clear()
    return told
