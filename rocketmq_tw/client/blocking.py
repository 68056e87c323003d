"""A blocking client for worker processes: no reactor, no threads, one socket for each address.

It is for one thread at a time, and never travels: workers make their own from the name servers'
addresses. In a process that was forked it makes connections of its own. It shares the codec with
the other clients.
"""

import os
import ssl
import time
from collections.abc import Callable, Container, Sequence
from typing import TypeVar

from rocketmq_tw.client import commands, name_server_commands
from rocketmq_tw.client.blocking_connection import BlockingConnection, ConnectionFailed
from rocketmq_tw.client.commands import Credentials
from rocketmq_tw.client.errors import (
    BrokerError,
    NoRouteError,
    UnknownTopicError,
    check_success,
)
from rocketmq_tw.client.message import Message, PulledBytes, PullResult, SendResult
from rocketmq_tw.client.preparing import (
    DEFAULT_TOPIC_QUEUES,
    Prepared,
    Preparer,
    check_queue,
    process_unique_ids,
    send_command,
)
from rocketmq_tw.client.routes import (
    QueueLeaders,
    address_of,
    default_topic_route,
    publish_queues,
    subscribe_queues,
)
from rocketmq_tw.client.topic_turns import TopicTurns
from rocketmq_tw.message.logic_queues import LOGIC_BROKER
from rocketmq_tw.message.names import AUTO_CREATE_TOPIC, check_group
from rocketmq_tw.message.tags import TAG_TYPE
from rocketmq_tw.net.address import name_server_addresses
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import MASTER_ID, BrokerData, TopicRouteData
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import WireError

T = TypeVar("T")

ROUTE_SECONDS = 30.0


class BlockingClient:
    """Reads and writes topics without a reactor.

    Calls fail with `BrokerError` (refused), `NoRouteError` (nobody has the topic) or
    `ConnectionFailed`. A request that fails on a connection from an earlier call is tried once
    more on a new one, unless it sends. `credentials` sign every request; `tls` encrypts all
    connections, those to name servers as well.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        group: str = "DEFAULT_CONSUMER",
        connect_timeout: float = 3.0,
        timeout: float = 10.0,
        send_retries: int = 2,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        check_group(group)
        self._name_servers = name_server_addresses(name_servers)
        self.group = group
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._send_retries = send_retries
        self._credentials = credentials
        self._tls = tls
        self._preparer = Preparer(process_unique_ids())
        self._process_id = os.getpid()
        self._connections: dict[str, BlockingConnection] = {}
        self._routes: dict[str, tuple[float, TopicRouteData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._leaders = QueueLeaders()
        self._turns = TopicTurns()

    def __enter__(self) -> "BlockingClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections; the next call would make new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Routes

    def route(self, topic: str) -> TopicRouteData:
        """Returns the route of a topic, at most 30 s old; raises `UnknownTopicError` where it has
        none."""
        known = self._routes.get(topic)
        if known is not None and time.monotonic() - known[0] < ROUTE_SECONDS:
            return known[1]
        route = self._ask_names(topic)
        if route is None:
            raise UnknownTopicError(f"no name server knows the topic {topic}")
        self._routes[topic] = (time.monotonic(), route)
        for data in route.broker_datas:
            self._brokers[data.broker_name] = data
        self._leaders.note(topic, route)
        return route

    def queues(self, topic: str) -> list[MessageQueue]:
        """Returns the queues to read of a topic, sorted."""
        return subscribe_queues(topic, self.route(topic))

    def topics(self) -> list[str]:
        """Returns the names of all topics that the name servers know, system topics among them."""
        return name_server_commands.read_topics(
            *self._ask_name_servers(name_server_commands.topics_command)
        )

    def forget_routes(self) -> None:
        """Has the next call ask for routes anew, as after a failure of a broker."""
        self._routes.clear()
        self._brokers.clear()
        self._leaders.forget_all()

    def write_queues(self, topic: str) -> list[MessageQueue]:
        """Returns the queues to send to; of a topic that is not there those that brokers would
        make."""
        try:
            route = self.route(topic)
        except UnknownTopicError:
            try:
                made = self.route(AUTO_CREATE_TOPIC)
            except UnknownTopicError:
                raise UnknownTopicError.nobody_takes(topic) from None
            route = default_topic_route(made, DEFAULT_TOPIC_QUEUES)
        queues = publish_queues(topic, route)
        if not queues:
            raise NoRouteError(f"no broker with a master takes messages of {topic}")
        return queues

    def serving_broker(self, queue: MessageQueue) -> str:
        """Returns the name of the broker that serves a queue: of a logic queue the one that leads
        it, by the route; raises `NoRouteError` where nobody does."""
        return self._at_broker(queue).broker_name

    # Reading

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = 32,
        *,
        expression: str = "*",
        expression_type: str = TAG_TYPE,
        suspend_seconds: float = 0.0,
        max_bytes: int | None = None,
    ) -> PullResult:
        """Returns messages from `offset` on; with `suspend_seconds` the broker waits for so long
        where there is none yet."""
        return self._ask(
            queue,
            lambda there: commands.pull_command(
                self.group,
                there,
                offset,
                expression=expression,
                expression_type=expression_type,
                max_messages=max_messages,
                suspend_seconds=suspend_seconds,
                max_bytes=max_bytes,
            ),
            lambda address, response: commands.read_pull(
                address, response, queue, expression, expression_type
            ),
            self._timeout + suspend_seconds,
        )

    def pull_bytes(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int,
        *,
        expression: str = "*",
        expression_type: str = TAG_TYPE,
        max_bytes: int | None = None,
    ) -> PulledBytes:
        """Pulls at most `max_messages` records from `offset` on, and leaves them undecoded.

        The broker compares only hash codes of tags, so records of other tags may be among them.
        Nothing there is answered at once.
        """
        return self._ask(
            queue,
            lambda there: commands.pull_command(
                self.group,
                there,
                offset,
                expression=expression,
                expression_type=expression_type,
                max_messages=max_messages,
                max_bytes=max_bytes,
            ),
            commands.read_pull_bytes,
        )

    def max_offset(self, queue: MessageQueue) -> int:
        """Returns the offset that the next message of the queue gets."""
        return self._ask(queue, commands.max_offset_command, commands.read_max_offset)

    def min_offset(self, queue: MessageQueue) -> int:
        """Returns the oldest offset that is still there."""
        return self._ask(queue, commands.min_offset_command, commands.read_min_offset)

    def search_offset(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """Returns the first offset stored at or after a time in ms; `upper`: the last at or before
        it."""
        return self._ask(
            queue,
            lambda there: commands.search_offset_command(there, timestamp_ms, upper=upper),
            commands.read_search_offset,
        )

    def earliest_store_time(self, queue: MessageQueue) -> int:
        """Returns when the queue's oldest message was stored, in ms."""
        return self._ask(
            queue, commands.earliest_store_time_command, commands.read_earliest_store_time
        )

    def committed_offset(self, queue: MessageQueue, group: str | None = None) -> int | None:
        """Returns where a group (ours by default) goes on; None where it has committed nothing."""
        return self._ask(
            queue,
            lambda there: commands.committed_offset_command(group or self.group, there),
            commands.read_committed_offset,
        )

    def commit_offset(self, queue: MessageQueue, offset: int, group: str | None = None) -> None:
        """Says that a group (ours by default) goes on at `offset`; returns once it is said."""
        self._ask(
            queue,
            lambda there: commands.commit_offset_command(group or self.group, there, offset),
            check_success,
        )

    # Writing

    def send(self, message: Message, *, queue: MessageQueue | None = None) -> SendResult:
        """Sends to `queue`, or to each in turn with further tries on other brokers; returns once
        it is acknowledged."""
        self._begin_in_child()
        return self._send(self._preparer.prepare(message), queue)

    def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None
    ) -> SendResult:
        """Sends messages of one topic in one request; all are stored or none."""
        self._begin_in_child()
        return self._send(self._preparer.prepare_batch(messages), queue)

    def _send(self, prepared: Prepared, queue: MessageQueue | None) -> SendResult:
        check_queue(queue, prepared.topic)
        failed: set[str | None] = set()
        tries = 1 if queue is not None else 1 + self._send_retries
        while True:
            tries -= 1
            target = queue or self._next_queue(prepared.topic, failed)
            if self._leaders.broker_of(target) not in self._brokers:
                # Also of a topic that its first message makes.
                self.write_queues(target.topic)
            failed.add(self._leaders.broker_of(target))
            try:
                return self._send_to(target, prepared)
            except (BrokerError, ConnectionFailed) as error:
                if isinstance(error, BrokerError) and error.code not in commands.RETRY_ELSEWHERE:
                    raise
                if tries <= 0:
                    raise

    def _send_to(self, queue: MessageQueue, prepared: Prepared) -> SendResult:
        return self._ask(
            queue,
            lambda there: send_command(prepared, self.group, there, wall_clock_ms()),
            lambda address, response: commands.read_send(address, response, prepared, queue),
            again=False,
        )

    def _next_queue(self, topic: str, avoid: Container[str | None]) -> MessageQueue:
        return self._turns.next_queue(self.write_queues(topic), avoid, self._leaders.broker_of)

    # Connections

    def _ask(
        self,
        queue: MessageQueue,
        make: Callable[[MessageQueue], RemotingCommand],
        read: Callable[[str, RemotingCommand], T],
        timeout: float | None = None,
        *,
        again: bool = True,
    ) -> T:
        """Returns what `read` makes of the answer of the broker that serves a queue; `make` gives
        the request, for the queue under that broker's name. A logic queue that has moved on is
        followed; `again` as for `_request`."""
        there = self._at_broker(queue)
        try:
            return self._ask_at(there, make(there), read, timeout, again)
        except BrokerError as error:
            if error.code != ResponseCode.NOT_LEADER_FOR_QUEUE:
                raise
            self.forget_routes()
            self.route(queue.topic)
            if self._leaders.broker_of(queue) in (there.broker_name, None):
                raise
        there = self._at_broker(queue)
        return self._ask_at(there, make(there), read, timeout, again)

    def _ask_at(
        self,
        there: MessageQueue,
        command: RemotingCommand,
        read: Callable[[str, RemotingCommand], T],
        timeout: float | None,
        again: bool,
    ) -> T:
        address = self._address(there)
        return read(address, self._request(address, command, timeout or self._timeout, again=again))

    def _at_broker(self, queue: MessageQueue) -> MessageQueue:
        """Returns the queue under the name of the broker that serves it; raises `NoRouteError`
        where nobody leads it."""
        if queue.broker_name == LOGIC_BROKER:
            # As old as any route at most: who leads it now may be another.
            self.route(queue.topic)
        return self._leaders.at_broker(queue)

    def _master_of(self, queue: MessageQueue) -> str | None:
        return address_of(self._brokers.values(), queue.broker_name, MASTER_ID)

    def _address(self, queue: MessageQueue) -> str:
        address = self._master_of(queue)
        if address is None:
            self.route(queue.topic)
            address = self._master_of(queue)
            if address is None:
                raise NoRouteError(f"no route of {queue.topic} names {queue.broker_name}")
        return address

    def _request(
        self, address: str, command: RemotingCommand, timeout: float, *, again: bool = True
    ) -> RemotingCommand:
        self._begin_in_child()
        if self._credentials is not None:
            self._credentials.sign(command)
        connection = self._connections.get(address)
        if connection is not None:
            try:
                return connection.request(command, timeout)
            except ConnectionFailed:
                del self._connections[address]
                # Another broker may have the name by now.
                self.forget_routes()
                if not again:
                    raise
        try:
            connection = BlockingConnection(address, self._connect_timeout, self._tls)
            self._connections[address] = connection
            return connection.request(command, timeout)
        except ConnectionFailed:
            self._connections.pop(address, None)
            self.forget_routes()
            raise

    def _begin_in_child(self) -> None:
        """Gives a client that came into this process by a fork connections and unique ids of its
        own: those that it has are its parent's."""
        process_id = os.getpid()
        if process_id != self._process_id:
            self._process_id = process_id
            self._preparer = Preparer(process_unique_ids())
            self.close()

    def _ask_names(self, topic: str) -> TopicRouteData | None:
        for _ in self._name_servers[1:]:
            try:
                return self._next_route(topic)
            except (BrokerError, WireError):
                # Another one may have it.
                continue
        return self._next_route(topic)

    def _next_route(self, topic: str) -> TopicRouteData | None:
        """Returns the route as a name server has it; one that answers with an error is asked last
        from now on."""
        address, response = self._ask_name_servers(
            lambda: name_server_commands.route_command(topic)
        )
        try:
            return name_server_commands.read_route(address, response)
        except (BrokerError, WireError):
            self._ask_last(address)
            raise

    def _ask_name_servers(self, make: Callable[[], RemotingCommand]) -> tuple[str, RemotingCommand]:
        """Returns the first name server that answers, and its answer."""
        reasons = []
        for address in list(self._name_servers):
            try:
                return address, self._request(address, make(), self._timeout)
            except ConnectionFailed as error:
                reasons.append(str(error))
                self._ask_last(address)
        raise NoRouteError("no name server answers: " + "; ".join(reasons))

    def _ask_last(self, address: str) -> None:
        """Has the name servers that answer come first from now on."""
        self._name_servers.remove(address)
        self._name_servers.append(address)
