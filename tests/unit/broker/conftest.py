"""A broker in memory for tests of one request after the other."""

import pytest
from msgspec.structs import force_setattr

from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def plane(files: FaultyFiles) -> BrokerInMemory:
    made = BrokerInMemory(files)
    made.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
    return made


@pytest.fixture
def registrations(plane: BrokerInMemory) -> list[RemotingCommand]:
    """What the broker tells its name server from now on."""
    told: list[RemotingCommand] = []

    def register(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        told.append(request)
        return request.response()

    plane.network.serve("10.0.0.1:9876", {RequestCode.REGISTER_BROKER: register})
    force_setattr(plane.config, "namesrv_addr", "10.0.0.1:9876")
    return told
