"""Shares what producers and consumers of one process have in common: connections, routes,
heartbeats, an id."""

import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rocketmq_tw.client.errors import BrokerError, ClientError, NoRouteError
from rocketmq_tw.client.members import BrokerRequests, GroupMember
from rocketmq_tw.client.name_servers import REQUEST_TIMEOUT, NameServers, Routes
from rocketmq_tw.client.routes import QueueLeaders, address_of
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.net.address import host_address
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import HeartbeatData, ProducerData
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import MASTER_ID, BrokerData, TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import WireError
from rocketmq_tw.wire.headers.clients import HeartbeatRequestHeader, UnregisterClientRequestHeader

HEARTBEAT_INTERVAL = 30.0

T = TypeVar("T")
_series = count(1).__next__


def logged(log: Logger, what: str, work: Coroutine[Deferred[Any], Any, Any]) -> Deferred[None]:
    """Runs `work`; what it raises goes to the log and nowhere else."""

    def failed(failure: Any) -> None:
        if failure.check(ClientError, RemotingError):
            log.warn("{what}: {error}", what=what, error=failure.value)
        else:
            log.failure("{what}", failure=failure, what=what)

    return Deferred.fromCoroutine(work).addErrback(failed)


class Session:
    """Shared by the producers and consumers that are given it; each makes its own otherwise.

    `start` and `stop` are counted, so the last user to leave ends the session. With `tls` all of
    its connections are TLS as the `tls.client` keys say.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        name_servers: str | Sequence[str],
        *,
        remoting: IRemotingClient | None = None,
        tls: TlsConfig | None = None,
        client_id: str | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.reactor = reactor
        self.now_ms = now_ms
        self.client_id = client_id or f"{host_address()}@{os.getpid()}#{time.time_ns()}#{_series()}"
        self.remoting: IRemotingClient = remoting or RemotingClient(reactor, tls=tls)
        self.names = NameServers(self.remoting, name_servers)
        self.routes = Routes(reactor, self.names)
        self.routes.on_change(self._route_changed)
        #: The brokers that stand in a route.
        self.brokers: dict[str, BrokerData] = {}
        #: Topic -> the names of the brokers in its route.
        self._brokers_of: dict[str, frozenset[str]] = {}
        #: Broker name -> how many routes have it.
        self._routes_with: Counter[str] = Counter()
        self.leaders = QueueLeaders()
        self._producers: dict[str, int] = {}
        self._consumers: dict[str, GroupMember] = {}
        BrokerRequests(self.remoting, self._consumers)
        self._heartbeats = PeriodicCall(reactor, "heartbeats", HEARTBEAT_INTERVAL, self.heartbeat)
        self._greeted: set[str] = set()
        self._users = 0

    # Life

    def start(self) -> None:
        """Counts one more user; the first one starts heartbeats and the refreshing of routes."""
        self._users += 1
        self.routes.start()
        self._heartbeats.start()

    def stop(self) -> Deferred[None]:
        """Takes one user off the session; fires once all connections are closed, where it was the
        last one."""
        self._users -= 1
        return self.close_unused()

    def close_unused(self) -> Deferred[None]:
        """Closes all connections where the session has no user; fires once they are closed."""
        if self._users > 0:
            return succeed(None)
        self.routes.stop()
        self._heartbeats.stop()
        return self.remoting.close()

    # Groups

    def add_producer(self, group: str) -> None:
        """Names a producer of `group` in heartbeats; each call counts one."""
        self._producers[group] = self._producers.get(group, 0) + 1

    def add_consumer(self, member: GroupMember) -> None:
        """Adds a consumer; raises where the session has one of its group, since brokers know
        consumers by client id."""
        group = member.group
        if group in self._consumers:
            raise ValueError(f"the session has a consumer of {group} already: give it its own")
        self._consumers[group] = member

    async def remove_producer(self, group: str) -> None:
        """Takes one producer of `group` off the session; brokers are told of the last one."""
        self._producers[group] -= 1
        if not self._producers[group]:
            del self._producers[group]
            await self._unregister(producer_group=group)

    async def remove_consumer(self, group: str) -> None:
        """Tells brokers that the consumer of `group` is gone."""
        if self._consumers.pop(group, None) is not None:
            await self._unregister(consumer_group=group)

    # Requests

    async def route(self, topic: str) -> TopicRouteData:
        """Returns the route of a topic; raises `NoRouteError` where it has none."""
        route = await self.routes.get(topic)
        if route is None:
            raise NoRouteError(f"no name server knows the topic {topic}")
        return route

    def broker_address(
        self, broker_name: str, broker_id: int = MASTER_ID, *, only: bool = False
    ) -> str:
        """Returns the address of a broker that stands in a route; raises `NoRouteError`."""
        address = address_of(self.brokers.values(), broker_name, broker_id, only=only)
        if address is None:
            raise NoRouteError(f"no route names broker {broker_id} of {broker_name}")
        return address

    async def ask_about(
        self,
        queue: MessageQueue,
        make: Callable[[MessageQueue], RemotingCommand],
        read: Callable[[str, RemotingCommand], T],
        timeout: float = REQUEST_TIMEOUT,
        broker_id: int = MASTER_ID,
    ) -> T:
        """Returns what `read` makes of the answer of the broker that serves a queue; `make` gives
        the request, for the queue under that broker's name. A logic queue that has moved on is
        followed. `timeout` is in seconds, for all of it."""
        deadline = self.reactor.seconds() + timeout
        there = self.leaders.at_broker(queue)
        address = self.broker_address(there.broker_name, broker_id)
        try:
            return await self.ask(address, make(there), read, timeout)
        except BrokerError as error:
            if error.code != ResponseCode.NOT_LEADER_FOR_QUEUE:
                raise
            if not await self._has_moved(queue, there.broker_name):
                raise
        there = self.leaders.at_broker(queue)
        address = self.broker_address(there.broker_name, broker_id)
        left = max(0.0, deadline - self.reactor.seconds())
        return await self.ask(address, make(there), read, left)

    async def ask(
        self,
        address: str,
        command: RemotingCommand,
        read: Callable[[str, RemotingCommand], T],
        timeout: float = REQUEST_TIMEOUT,
    ) -> T:
        """Returns what `read` makes of the answer."""
        return read(address, await self.remoting.request(address, command, timeout))

    # Heartbeats

    def heartbeat(self) -> Deferred[None]:
        """Tells every broker in use who we are; fires when all have answered or failed."""
        return logged(self.log, "heartbeats", self._greet_all())

    def heartbeat_missed(self) -> Deferred[None]:
        """Tells who we are to those brokers that the last heartbeat did not reach."""
        return logged(self.log, "heartbeats", self._greet_all(missed_only=True))

    def suspect(self, address: str) -> None:
        """Notes that a request to a broker failed: it may have been started anew and not know this
        client."""
        self._greeted.discard(address)

    def heartbeat_body(self) -> bytes:
        """Returns the body of a heartbeat (34): all producers and consumers of the session."""
        return encode_body(
            HeartbeatData(
                client_id=self.client_id,
                producer_data_set=[ProducerData(group_name=group) for group in self._producers],
                consumer_data_set=[member.describe() for member in self._consumers.values()],
            )
        )

    async def _greet_all(self, missed_only: bool = False) -> None:
        if not self._producers and not self._consumers:
            return
        body = self.heartbeat_body()
        greetings = [
            Deferred.fromCoroutine(self._greet(address, body))
            for address in self._addresses()
            if not (missed_only and address in self._greeted)
        ]
        for greeting in greetings:
            await greeting

    def _addresses(self) -> list[str]:
        """Returns where heartbeats go: slaves hear of consumers only, as in stock."""
        return [
            address
            for data in self.brokers.values()
            for broker_id, address in data.broker_addrs.items()
            if broker_id == MASTER_ID or self._consumers
        ]

    async def _greet(self, address: str, body: bytes) -> None:
        command = RemotingCommand.request(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), body)
        try:
            response = await self.remoting.request(address, command, REQUEST_TIMEOUT)
            if response.code != 0:
                raise BrokerError(address, response.code, response.remark)
        except (RemotingError, BrokerError) as error:
            self._greeted.discard(address)
            self.log.warn("a heartbeat to {address} failed: {why}", address=address, why=error)
        else:
            self._greeted.add(address)

    async def _unregister(
        self, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        header = UnregisterClientRequestHeader(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        # At once: brokers that hang would add up.
        told = [
            self.remoting.request(
                address,
                RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, header),
                REQUEST_TIMEOUT,
            )
            for address in list(self._greeted)
        ]
        for each in told:
            try:
                await each
            except RemotingError as error:
                self.log.info("unregistering: {error}", error=error)

    async def _has_moved(self, queue: MessageQueue, former: str) -> bool:
        """Returns whether another broker than `former` serves the queue by now; asks for the route
        anew where none is known."""
        if self.leaders.broker_of(queue) == former:
            try:
                await self.routes.refresh(queue.topic)
            except (ClientError, WireError) as error:
                self.log.warn("the route of {topic}: {error}", topic=queue.topic, error=error)
        return self.leaders.broker_of(queue) not in (former, None)

    def _route_changed(self, topic: str, route: TopicRouteData) -> None:
        self.leaders.note(topic, route)
        brokers = {data.broker_name: data for data in route.broker_datas}
        is_new = any(self.brokers.get(name) != data for name, data in brokers.items())
        self.brokers.update(brokers)
        self._forget_brokers(topic, frozenset(brokers))
        if is_new and self._users:
            self.heartbeat()

    def _forget_brokers(self, topic: str, brokers: frozenset[str]) -> None:
        """Forgets the brokers that were in the route of `topic` only, where it has `brokers` now,
        and former addresses of brokers: heartbeats to them would fail again and again."""
        before = self._brokers_of.get(topic, frozenset())
        self._brokers_of[topic] = brokers
        self._routes_with.update(brokers - before)
        self._routes_with.subtract(before - brokers)
        for name in before - brokers:
            if not self._routes_with[name]:
                self.log.info("no route has the broker {name} any more", name=name)
                del self._routes_with[name], self.brokers[name]
        self._greeted.intersection_update(
            address for data in self.brokers.values() for address in data.broker_addrs.values()
        )
