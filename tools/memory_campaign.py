"""Lets clients, groups and topics come and go for some minutes, and says what memory that leaves.

    python -m tools.memory_campaign --minutes 10

A name server, a broker and a proxy are processes on loopback that the campaign starts and ends.
Each wave makes topics and groups and connects classic clients to the broker and to the proxy, and
gRPC clients to the proxy; they send (plain, delayed, timed and half messages), pull, pop and
acknowledge some of what they got; then all of them go, some with a word and some without, and
topics and groups are deleted. The resident memory at the end is compared with that after a quarter;
the exit code is 1 where it grew beyond `--growth`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater, react

from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.net.address import split_address
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.messaging.methods import path
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proto.messages import Duration
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode as Code
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.clients import (
    DeleteSubscriptionGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketmq_tw.wire.headers.namesrv import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
)
from rocketmq_tw.wire.headers.pop import PopMessageRequestHeader
from rocketmq_tw.wire.headers.pull import PULL_SUBSCRIPTION, PULL_SUSPEND, PullMessageRequestHeader
from rocketmq_tw.wire.headers.send import SendMessageRequestHeaderV2
from rocketmq_tw.wire.headers.topics import DeleteTopicRequestHeader
from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.heartbeats import heartbeat_of, push_consumer
from tests.support.http2 import Http2Client, framed
from tests.support.processes import ServerProcess
from tests.support.proxies import OurProxy
from tests.support.remoting import topic_header

MIB = 1 << 20
#: Topics, groups, and clients of each kind in one wave; messages of each kind that one sends.
NAMES, CLIENTS, MESSAGES = 5, 10, 4
_KINDS: tuple[dict[str, str], ...] = (
    {"KEYS": "k", "TAGS": "a"},
    {"DELAY": "1"},
    {"TIMER_DELAY_SEC": "5"},
    {"TRAN_MSG": "true"},
)


class Site(NamedTuple):
    """Where the servers are."""

    names: str
    broker: str
    proxy: str


class Counts:
    """What was done, and what went wrong."""

    def __init__(self) -> None:
        self.requests = self.clients = self.waves = self.refused = 0
        self.first_refusal = ""

    def note(self, answer: RemotingCommand) -> None:
        """Counts an answer."""
        self.requests += 1
        if answer.code not in (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.POLLING_TIMEOUT,
        ):
            self.refused += 1
            self.first_refusal = self.first_refusal or str(answer)


class Wave:
    """One wave of clients."""

    def __init__(self, reactor: Any, site: Site, number: int, counts: Counts) -> None:
        self._reactor = reactor
        self._site = site
        self._counts = counts
        self._number = number
        self._topics = [f"T{number}-{each}" for each in range(NAMES)]
        self._groups = [f"G{number}-{each}" for each in range(NAMES)]

    async def run(self) -> None:
        """Comes and goes."""
        admin = RemotingClient(self._reactor)
        for topic, group in zip(self._topics, self._groups, strict=True):
            header = topic_header(topic, queues=2)
            await self._ask(admin, self._site.broker, Code.UPDATE_AND_CREATE_TOPIC, header)
            config = encode_body(SubscriptionGroupConfig(group_name=group))
            code = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            await self._ask(admin, self._site.broker, code, None, config)
        clients: list[Coroutine[Any, Any, None]] = []
        for each in range(CLIENTS):
            clients.append(self._classic(each, self._site.broker))
            clients.append(self._classic(CLIENTS + each, self._site.proxy))
            clients.append(self._grpc(each))
        self._counts.clients += len(clients)
        running: list[Deferred[Any]] = [Deferred.fromCoroutine(client) for client in clients]
        results: list[tuple[bool, Any]] = await DeferredList(running, consumeErrors=True)
        for ok, result in results:
            if not ok:
                self._counts.refused += 1
                self._counts.first_refusal = self._counts.first_refusal or result.getTraceback()
        for topic in self._topics:
            deletion = DeleteTopicRequestHeader(topic=topic)
            await self._ask(admin, self._site.broker, Code.DELETE_TOPIC_IN_BROKER, deletion)
            of_names = DeleteTopicFromNamesrvRequestHeader(topic=topic)
            await self._ask(admin, self._site.names, Code.DELETE_TOPIC_IN_NAMESRV, of_names)
        for group in self._groups:
            for name in (f"%RETRY%{group}", f"%DLQ%{group}"):
                deletion = DeleteTopicRequestHeader(topic=name)
                await self._ask(admin, self._site.broker, Code.DELETE_TOPIC_IN_BROKER, deletion)
            gone = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=True)
            await self._ask(admin, self._site.broker, Code.DELETE_SUBSCRIPTIONGROUP, gone)
        await admin.close()
        self._counts.waves += 1

    async def _ask(
        self,
        client: RemotingClient,
        address: str,
        code: int,
        header: Header | None,
        body: bytes = b"",
    ) -> RemotingCommand:
        command = RemotingCommand.request(code, header, body)
        command.ext_fields.setdefault("bname", "broker-a")
        answer = await client.request(address, command, 20.0)
        self._counts.note(answer)
        return answer

    async def _classic(self, each: int, address: str) -> None:
        client = RemotingClient(self._reactor)
        topic, group = self._topics[each % NAMES], self._groups[each % NAMES]
        client_id = f"c{self._number}-{each}"
        if address == self._site.proxy:
            route = GetRouteInfoRequestHeader(topic=topic)
            await self._ask(client, address, Code.GET_ROUTEINFO_BY_TOPIC, route)
        data = heartbeat_of(client_id, push_consumer(group, topic), producer=group)
        await self._ask(client, address, Code.HEART_BEAT, None, encode_body(data))
        for kind in _KINDS * MESSAGES:
            properties = {"UNIQ_KEY": f"{client_id}-{self._counts.requests}", "PGROUP": group}
            header = SendMessageRequestHeaderV2(
                producer_group=group,
                topic=topic,
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=0,
                sys_flag=0,
                born_timestamp=int(time.time() * 1000),
                flag=0,
                properties=join_properties(properties | kind).decode(),
            )
            await self._ask(client, address, Code.SEND_MESSAGE_V2, header, bytes(200))
        for offset, flag in ((0, 0), (1 << 40, PULL_SUSPEND)):
            pull = PullMessageRequestHeader(
                consumer_group=group,
                topic=topic,
                queue_id=0,
                queue_offset=offset,
                max_msg_nums=32,
                sys_flag=PULL_SUBSCRIPTION | flag,
                commit_offset=0,
                suspend_timeout_millis=15_000,
                sub_version=0,
                subscription="*",
            )
            command = RemotingCommand.request(Code.PULL_MESSAGE, pull)
            command.ext_fields.setdefault("bname", "broker-a")
            asked = client.request(address, command, 20.0)
            if flag:
                # Held when the client goes.
                asked.addErrback(lambda failure: failure.trap(RemotingError) and None)
            else:
                await asked
        pop = PopMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=-1,
            max_msg_nums=2,
            invisible_time=10_000,
            poll_time=0,
            born_time=0,
            init_mode=0,
        )
        if address == self._site.broker:
            await self._ask(client, address, Code.POP_MESSAGE, pop)
        if each % 2:
            leave = UnregisterClientRequestHeader(
                client_id=client_id, producer_group=group, consumer_group=group
            )
            await self._ask(client, address, Code.UNREGISTER_CLIENT, leave)
        await client.close()

    async def _grpc(self, each: int) -> None:
        topic, group = self._topics[each % NAMES], self._groups[each % NAMES]
        client = await _GrpcClient.connect(
            self._reactor, self._site.proxy, f"g{self._number}-{each}"
        )
        settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
        settings.subscription.group.name = group
        entry = settings.subscription.subscriptions.add()
        entry.topic.name = topic
        entry.expression.type, entry.expression.expression = pb.TAG, "*"
        await client.tell(settings)
        topic_name, group_name = pb.Resource(name=topic), pb.Resource(name=group)
        for _ in range(2 * MESSAGES):
            self._counts.requests += 1
            system = pb.SystemProperties(
                message_id=f"{client.client_id}-{self._counts.requests}", message_type=pb.NORMAL
            )
            message = pb.Message(topic=topic_name, body=bytes(200), system_properties=system)
            await client.ask("SendMessage", pb.SendMessageRequest(messages=[message]))
        request = pb.ReceiveMessageRequest(
            group=group_name,
            message_queue=pb.MessageQueue(topic=topic_name),
            filter_expression=pb.FilterExpression(type=pb.TAG, expression="*"),
            batch_size=4,
            auto_renew=True,
            long_polling_timeout=Duration(seconds=1),
        )
        self._counts.requests += 1
        for data in await client.ask("ReceiveMessage", request):
            answer = pb.ReceiveMessageResponse.FromString(data)
            if answer.WhichOneof("content") == "message" and each % 2:
                of_message = answer.message.system_properties
                acked = pb.AckMessageEntry(
                    message_id=of_message.message_id, receipt_handle=of_message.receipt_handle
                )
                ack = pb.AckMessageRequest(group=group_name, topic=topic_name, entries=[acked])
                await client.ask("AckMessage", ack)
        if each % 3 == 0:
            leave = pb.NotifyClientTerminationRequest(group=group_name)
            await client.ask("NotifyClientTermination", leave)
        client.lose()


class _GrpcClient:
    """A gRPC client with a connection of its own."""

    def __init__(self, reactor: Any, http2: Any, client_id: str) -> None:
        self._reactor = reactor
        self._http2 = http2
        self.client_id = client_id
        self._headers = {"x-mq-client-id": client_id, "x-mq-language": "PYTHON"}

    @classmethod
    async def connect(cls, reactor: Any, address: str, client_id: str) -> _GrpcClient:
        """Connects to the proxy."""
        endpoint = TCP4ClientEndpoint(reactor, *split_address(address))
        factory = Factory.forProtocol(Http2Client)
        factory.noisy = False
        connected: Any = await endpoint.connect(factory)
        return cls(reactor, connected, client_id)

    async def tell(self, settings: pb.Settings) -> None:
        """Says what it is, over a stream that stays open."""
        stream, response = self._http2.open(path("Telemetry"), self._headers)
        command = pb.TelemetryCommand(settings=settings)
        self._http2.send(stream, framed(command.SerializeToString()))
        await self._until(lambda: bool(response.messages), "settings")

    async def ask(self, method: str, request: Any) -> list[bytes]:
        """Returns the messages of the response."""
        stream, response = self._http2.open(path(method), self._headers)
        self._http2.send(stream, framed(request.SerializeToString()), end=True)
        await self._until(lambda: response.ended or response.reset is not None, method)
        if response.status != 0:
            raise ValueError(f"{method}: {response}")
        return response.messages

    async def _until(self, is_there: Any, what: str) -> None:
        end = time.monotonic() + 30
        while not is_there():
            if time.monotonic() > end or self._http2.lost:
                raise ValueError(f"no answer to {what}")
            await deferLater(self._reactor, 0.01)

    def lose(self) -> None:
        """Ends the connection without a word."""
        self._http2.transport.abortConnection()


class Look(NamedTuple):
    """The memory of each server, in bytes, so many seconds after the start."""

    seconds: float
    resident: tuple[int, ...]


def run(site: Site, servers: list[ServerProcess], minutes: float) -> tuple[list[Look], Counts]:
    """Waves until the time is up; looks at memory after each."""
    counts, looks = Counts(), list[Look]()
    began = time.monotonic()

    async def waves(reactor: Any) -> None:
        while (passed := time.monotonic() - began) < minutes * 60:
            await Wave(reactor, site, counts.waves, counts).run()
            looks.append(Look(passed, tuple(_resident(server) for server in servers)))

    try:
        react(lambda reactor: Deferred.fromCoroutine(waves(reactor)))
    except SystemExit as end:
        if end.code:
            raise
    return looks, counts


def _resident(server: ServerProcess) -> int:
    return int(psutil.Process(server.pid).memory_info().rss)


def _mean(looks: list[Look], server: int) -> float:
    return sum(look.resident[server] for look in looks) / len(looks)


def report(looks: list[Look], names: list[str], minutes: float, growth: int) -> list[str]:
    """Prints a line for each server; returns what grew too much. Each figure is the mean of a
    tenth of the time, up to that moment."""
    print("| server | " + " | ".join(f"{tenth}0 %" for tenth in range(1, 11)) + " | grew |")
    print("|---|" + "--:|" * 11)
    tenths = [
        [look for look in looks if tenth * 6 * minutes <= look.seconds < (tenth + 1) * 6 * minutes]
        for tenth in range(10)
    ]
    faults = []
    quarter = [look for look in looks if 0.2 <= look.seconds / (minutes * 60) < 0.3]
    for server, name in enumerate(names):
        figures = [f"{_mean(tenth, server) / MIB:.1f}" if tenth else "" for tenth in tenths]
        grew = _mean(tenths[-1], server) - _mean(quarter, server)
        print(f"| {name} | {' | '.join(figures)} | {grew / MIB:+.1f} MiB |")
        if grew > growth:
            faults.append(f"the {name} grew by {grew / MIB:.1f} MiB since a quarter of the time")
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--growth", type=int, default=24, help="MiB that a server may grow")
    parser.add_argument("--logs", type=Path, help="where the servers' files stay")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = options.logs or Path(directory)
        names = make_name_server(OURS, home / "namesrv")
        settings = {"transactionTimeOut": "2000", "transactionCheckMax": "2"}
        settings |= {"transactionCheckInterval": "3000"}
        broker = make_broker(OURS, "broker-a", home / "broker", [names], settings=settings)
        proxy = OurProxy(home / "proxy", names.address)
        servers: list[ServerProcess] = [names, broker, proxy]
        try:
            for server in servers:
                server.launch()
                server.wait_ready()
            site = Site(names.address, broker.address, proxy.ports.grpc)
            looks, counts = run(site, servers, options.minutes)
        finally:
            for server in reversed(servers):
                server.close()
    faults = report(
        looks, ["name server", "broker", "proxy"], options.minutes, options.growth * MIB
    )
    print(
        f"{counts.waves} waves, {counts.clients:,} clients, {counts.requests:,} requests,"
        f" {counts.refused} refused {counts.first_refusal}"
    )
    for fault in faults:
        print(fault)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
