"""The producer: picks a queue, sends, and tries another broker where one does not take it."""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rocketmq_tw.client.commands import RETRY_ELSEWHERE, read_send
from rocketmq_tw.client.errors import BrokerError, NoRouteError, UnknownTopicError
from rocketmq_tw.client.message import Message, SendResult
from rocketmq_tw.client.preparing import (
    DEFAULT_TOPIC_QUEUES,
    Prepared,
    Preparer,
    check_queue,
    process_unique_ids,
    send_command,
)
from rocketmq_tw.client.routes import default_topic_route, publish_queues, queue_of_key
from rocketmq_tw.client.session import Session
from rocketmq_tw.client.settings import DEFAULT_PRODUCER, ProducerSettings
from rocketmq_tw.client.topic_turns import TopicTurns
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.message.names import AUTO_CREATE_TOPIC, check_group
from rocketmq_tw.net.errors import ConnectionLost, RemotingError, RequestTimeout
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import TopicRouteData

#: Chooses the queue of a message among the topic's: `selector(queues, message)`.
Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]


class Producer:
    """Sends messages of any topic for one producer group.

    Every method returns a Deferred and may be awaited in `async def`. A send fires with a
    `SendResult` once the broker acknowledged; it fails with `BrokerError`, `NoRouteError`, or the
    error of the connection: `RequestTimeout` and `ConnectionLost` leave open whether the message
    was stored, so the first such one is what several tries fail with. A message that is illegal
    raises at once, from the call itself.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        name_servers: str | Sequence[str],
        group: str,
        *,
        session: Session | None = None,
        tls: TlsConfig | None = None,
        settings: ProducerSettings = DEFAULT_PRODUCER,
    ) -> None:
        """`tls` is for a session of its own, which it makes where it is given none."""
        check_group(group)
        self.group = group
        self.session = session or Session(reactor, name_servers, tls=tls)
        self._settings = settings
        self._preparer = Preparer(process_unique_ids(), compress_over=settings.compress_over)
        self._turns = TopicTurns(settings.first_queue)
        self._queues: dict[str, list[MessageQueue]] = {}
        self._forget_routes: Callable[[], None] = lambda: None
        self._is_started = False

    def start(self) -> Deferred[None]:
        """Joins the group; from here on brokers hear of it every 30 seconds."""
        if self._is_started:
            return succeed(None)
        self._is_started = True
        self._forget_routes = self.session.routes.on_change(self._forget_queues)
        self.session.start()
        self.session.add_producer(self.group)
        return self.session.heartbeat()

    def stop(self) -> Deferred[None]:
        """Leaves the group and closes the connections, unless others share the session; a second
        call changes nothing."""
        return Deferred.fromCoroutine(self._stop())

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> Deferred[SendResult]:
        """Sends to `queue`, to the one that `selector` chooses, or to each in turn.

        Only in the last case another broker is tried where one fails. `timeout` bounds all tries
        together.
        """
        check_queue(queue, message.topic)
        prepared = self._preparer.prepare(message)
        return Deferred.fromCoroutine(self._send(prepared, message, queue, selector, timeout))

    def send_prepared(
        self, prepared: Prepared, *, timeout: float | None = None
    ) -> Deferred[SendResult]:
        """Sends what is prepared already, to each queue of its topic in turn, as `send` does."""
        message = Message(prepared.topic, prepared.body)
        return Deferred.fromCoroutine(self._send(prepared, message, None, None, timeout))

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> Deferred[SendResult]:
        """Sends several messages of one topic in one request; all are stored or none."""
        prepared = self._preparer.prepare_batch(messages)
        check_queue(queue, prepared.topic)
        return Deferred.fromCoroutine(self._send(prepared, messages[0], queue, None, timeout))

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> Deferred[None]:
        """Sends without an acknowledgement; fires once it is handed to the connection."""
        check_queue(queue, message.topic)
        prepared = self._preparer.prepare(message)
        return Deferred.fromCoroutine(self._send_oneway(prepared, message, queue, selector))

    def queues(self, topic: str) -> Deferred[list[MessageQueue]]:
        """Fires with the queues that messages of `topic` go to."""
        return Deferred.fromCoroutine(self._queues_of(topic))

    def _forget_queues(self, topic: str, _: TopicRouteData) -> None:
        self._queues.pop(topic, None)

    async def _stop(self) -> None:
        if not self._is_started:
            await self.session.close_unused()
            return
        self._is_started = False
        self._forget_routes()
        # It is told of no change from now on.
        self._queues.clear()
        await self.session.remove_producer(self.group)
        await self.session.stop()

    async def _send(
        self,
        prepared: Prepared,
        message: Message,
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout: float | None,
    ) -> SendResult:
        seconds = self.session.reactor.seconds
        limit = self._settings.send_timeout if timeout is None else timeout
        deadline = seconds() + limit
        target = await self._choose(message, queue, selector)
        tries = 1 if queue is not None or selector is not None else 1 + self._settings.retries
        broker_of = self.session.leaders.broker_of
        failed: set[str | None] = set()
        unsure: RemotingError | None = None
        while True:
            tries -= 1
            failed.add(broker_of(target))
            try:
                return await self._send_to(target, prepared, deadline - seconds())
            except (RemotingError, BrokerError, NoRouteError) as error:
                is_final = isinstance(error, BrokerError) and error.code not in RETRY_ELSEWHERE
                if is_final or tries <= 0 or seconds() >= deadline:
                    if unsure is not None:
                        raise unsure from error
                    raise
                if isinstance(error, RequestTimeout | ConnectionLost):
                    unsure = unsure or error
                self.log.info(
                    "a message to {topic} is sent again: {error}",
                    topic=prepared.topic,
                    error=error,
                )
                # The route may be another one by now.
                queues = await self._queues_for(prepared.topic)
                target = self._turns.next_queue(queues, failed, broker_of)

    async def _send_to(self, queue: MessageQueue, prepared: Prepared, timeout: float) -> SendResult:
        if timeout <= 0:
            address = self.session.broker_address(self.session.leaders.at_broker(queue).broker_name)
            raise RequestTimeout(address, 0, self._settings.send_timeout)
        return await self.session.ask_about(
            queue,
            lambda there: send_command(prepared, self.group, there, self.session.now_ms()),
            lambda address, response: read_send(address, response, prepared, queue),
            timeout,
        )

    async def _send_oneway(
        self,
        prepared: Prepared,
        message: Message,
        queue: MessageQueue | None,
        selector: Selector | None,
    ) -> None:
        target = self.session.leaders.at_broker(await self._choose(message, queue, selector))
        command = send_command(prepared, self.group, target, self.session.now_ms(), oneway=True)
        await self.session.remoting.send_oneway(
            self.session.broker_address(target.broker_name), command
        )

    async def _choose(
        self, message: Message, queue: MessageQueue | None, selector: Selector | None
    ) -> MessageQueue:
        queues = await self._queues_for(message.topic)
        if queue is not None:
            return queue
        if selector is not None:
            return selector(queues, message)
        return self._turns.next_queue(queues)

    async def _queues_for(self, topic: str) -> list[MessageQueue]:
        return self._queues.get(topic) or await self._queues_of(topic)

    async def _queues_of(self, topic: str) -> list[MessageQueue]:
        route = await self.session.routes.get(topic)
        if route is None:
            # The broker will create the topic as it has the default one.
            route = await self.session.routes.get(AUTO_CREATE_TOPIC)
            if route is None:
                raise UnknownTopicError.nobody_takes(topic)
            route = default_topic_route(route, DEFAULT_TOPIC_QUEUES)
        queues = publish_queues(topic, route)
        if not queues:
            raise NoRouteError(f"no broker with a master takes messages of {topic}")
        self._queues[topic] = queues
        return queues


def by_key(key: str | int) -> Selector:
    """Returns a selector for ordered messages: the same key goes to the same queue, as long as the
    topic has the same queues."""

    def select(queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
        return queue_of_key(queues, key)

    return select
