"""The clients over TLS, on sockets and the reactor itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from rocketmq_tw.broker.cluster.part import Cluster
from rocketmq_tw.client.admin import AdminClient
from rocketmq_tw.client.errors import NoRouteError
from rocketmq_tw.client.message import Message, ReceivedMessage
from rocketmq_tw.client.producer import Producer
from rocketmq_tw.client.pull import PullConsumer
from rocketmq_tw.client.push import PushConsumer
from rocketmq_tw.client.settings import ConsumerSettings, StartFrom
from rocketmq_tw.config.net import NettyServerConfig, TlsConfig
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.net.tls import ServerTls
from tests.support.broker import BrokerInMemory
from tests.support.name_server import NameServerInMemory
from tests.support.network import MemoryNetwork


@asynccontextmanager
async def served(reactor: Any) -> AsyncIterator[str]:
    """A name server and a broker with a queue of topic T that take TLS only; the address of the
    first. Between them the network is one in memory."""
    config = NettyServerConfig(bind_address="127.0.0.1")
    server = RemotingServer(reactor, config, tls=ServerTls(TlsConfig(server_mode="enforcing")))
    network, names = MemoryNetwork(reactor), NameServerInMemory(reactor)
    network.serve("10.0.0.1:9876", names.handlers)
    listener = server.listener()
    listener.serve(names.handlers)
    address = f"127.0.0.1:{listener.listen()}"
    broker = BrokerInMemory(
        clock=reactor,
        network=network,
        address="127.0.0.1:0",
        broker={"namesrv_addr": "10.0.0.1:9876"},
        server=server,
    )
    broker.add_topic("T", read_queue_nums=1, write_queue_nums=1)
    await broker.broker[Cluster].membership.register(force=True)
    try:
        yield address
    finally:
        await broker.broker.stop()
        await server.stop()


@pytest_twisted.ensureDeferred
async def test_what_is_sent_over_tls_is_read_over_tls() -> None:
    from twisted.internet import reactor

    received: Deferred[ReceivedMessage] = Deferred()
    async with served(reactor) as address:
        producer = Producer(reactor, address, "p", tls=TlsConfig())
        await producer.start()
        await producer.send(Message("T", b"hello"))
        pull = PullConsumer(reactor, address, "g", tls=TlsConfig())
        await pull.start()
        (queue,) = await pull.queues("T")
        assert [message.body for message in (await pull.pull(queue, 0)).messages] == [b"hello"]
        push = PushConsumer(
            reactor,
            address,
            "h",
            received.callback,
            settings=ConsumerSettings(start_from=StartFrom.FIRST),
            tls=TlsConfig(),
        )
        push.subscribe("T")
        await push.start()
        assert (await received).body == b"hello"
        admin = AdminClient(reactor, address, tls=TlsConfig())
        route = await admin.topic_route("T")
        assert route is not None and route.queue_datas[0].broker_name == "broker-a"
        for client in (producer, pull, push):
            await client.stop()
        await admin.close()


@pytest_twisted.ensureDeferred
async def test_without_tls_the_error_says_what_may_be_missing() -> None:
    from twisted.internet import reactor

    async with served(reactor) as address:
        producer = Producer(reactor, address, "p")
        with capturedLogs(), pytest.raises(NoRouteError, match="takes TLS only"):
            await producer.send(Message("T", b"hello"))
        await producer.session.remoting.close()
