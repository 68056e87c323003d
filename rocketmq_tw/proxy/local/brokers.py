"""The brokers behind a proxy in a broker's process: that one is called, all others are asked over
the network."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.broker.broker import Broker
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.sending.part import Sending
from rocketmq_tw.broker.sending.plain import PlainSends
from rocketmq_tw.broker.sending.send import REMARKS
from rocketmq_tw.client.commands import SEND_STATUSES
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.client.message import SendResult
from rocketmq_tw.client.preparing import send_header
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.net.in_process import InProcessPeer, call_handler
from rocketmq_tw.proxy.brokers import (
    ABSENT_SECONDS,
    IBrokers,
    IProxyClient,
    Outgoing,
    send_by_request,
)
from rocketmq_tw.proxy.memberships import Membership, unregistration_of
from rocketmq_tw.store.interface import Appended
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand

#: Seconds that a oneway request may take.
_ONEWAY_SECONDS = 15.0
#: Seconds that the broker gets to store what it has popped for a pop that is withdrawn.
_STORE_SECONDS = 3.0

log = Logger()


class _Pop(NamedTuple):
    """A pop that the broker has not answered, and its peer. Brokers hold nothing for a peer that
    has left, so each pop has one of its own."""

    peer: InProcessPeer
    answer: Deferred[RemotingCommand]


@implementer(IBrokers)
class LocalBrokers:
    """The cluster of a broker. While the broker is no master, who serves in its place is asked."""

    def __init__(self, clock: IReactorTime, broker: Broker, others: IBrokers) -> None:
        self._clock = clock
        self._broker = broker
        self._others = others
        self.unseen_changed = others.unseen_changed
        self._name = broker.config.broker_name
        self._sending = broker[Sending]
        self._own = self._peer("proxy")
        #: The clients that the broker knows by peers of their own.
        self._peers: dict[IProxyClient, InProcessPeer] = {}
        self._memberships: dict[IProxyClient, frozenset[Membership]] = {}
        #: Whom pops are for -> opaque -> pop.
        self._pops: dict[IProxyClient | None, dict[int, _Pop]] = {}

    def route(
        self, topic: str, absent_seconds: float = ABSENT_SECONDS
    ) -> Deferred[TopicRouteData | None]:
        return self._others.route(topic, absent_seconds)

    def known_route(self, topic: str) -> TopicRouteData | None:
        return self._others.known_route(topic)

    def refresh_route(self, topic: str) -> Deferred[TopicRouteData | None]:
        return self._others.refresh_route(topic)

    def ask(
        self,
        broker_name: str,
        request: RemotingCommand,
        timeout: float,
        client: IProxyClient | None = None,
    ) -> Deferred[RemotingCommand]:
        if not self._is_here(broker_name):
            return self._others.ask(broker_name, request, timeout, client)
        if request.code == RequestCode.POP_MESSAGE:
            return self._pop(request, timeout, client)
        peer = self._peer_of(request, client)
        return call_handler(self._broker.listener.handlers, request, peer, timeout, self._clock)

    def send(self, queue: MessageQueue, outgoing: Outgoing, timeout: float) -> Deferred[SendResult]:
        plain = self._sending.plain
        properties = outgoing.properties
        if plain is not None and properties is not None and queue.broker_name == self._name:
            sent = self._store(plain, queue, outgoing, properties)
            if sent is not None:
                # Most are answered before a timer could be due.
                if not plain.answers_in_turn:
                    sent.addTimeout(timeout, self._clock, self._timed_out)
                return sent
        return send_by_request(self, queue, outgoing, timeout)

    def withdraw(self, request: RemotingCommand, client: IProxyClient | None = None) -> bool:
        pop = self._pops.get(client, {}).get(request.opaque)
        if pop is None:
            return self._others.withdraw(request, client)
        self._withdraw(pop)
        return True

    def tell(
        self, broker_name: str, request: RemotingCommand, client: IProxyClient | None = None
    ) -> Deferred[None]:
        if not self._is_here(broker_name):
            return self._others.tell(broker_name, request, client)
        asked = self.ask(broker_name, request, _ONEWAY_SECONDS, client)
        return asked.addBoth(lambda _: None)

    def enter(
        self,
        client: IProxyClient,
        memberships: Collection[Membership],
        broker_names: Collection[str] | None = None,
    ) -> None:
        self._others.enter(client, memberships, broker_names)
        known = self._memberships.get(client, frozenset())
        if broker_names is None or self._name in broker_names:
            self._unregister(client, known.difference(memberships))
        else:
            self._leave(client)
        self._memberships[client] = frozenset(memberships)

    def leave(self, client: IProxyClient, memberships: Collection[Membership]) -> None:
        self._others.leave(client, memberships)
        known = self._memberships.get(client, frozenset())
        self._unregister(client, known.intersection(memberships))
        if client in self._memberships:
            self._memberships[client] = known.difference(memberships)

    def forget(self, client: IProxyClient) -> None:
        self._others.forget(client)
        self._memberships.pop(client, None)
        if client in self._peers:
            self._leave(client)
            for pop in list(self._pops.get(client, {}).values()):
                self._withdraw(pop)

    def unseen(self, group: str) -> Collection[IProxyClient]:
        return self._others.unseen(group)

    def names(self) -> Sequence[str]:
        names = self._others.names()
        return names if self._name in names else [*names, self._name]

    def are_told(self) -> bool:
        return self._others.are_told()

    def _is_here(self, broker_name: str) -> bool:
        return broker_name == self._name and self._broker.role.role is Role.MASTER

    def _store(
        self,
        plain: PlainSends,
        queue: MessageQueue,
        outgoing: Outgoing,
        properties: dict[str, str],
    ) -> Deferred[SendResult] | None:
        """Hands a message to the broker as it is; returns None where it has to be asked by a
        request."""
        sent: Deferred[SendResult] = Deferred()
        prepared = outgoing.prepared

        def done(code: ResponseCode, appended: Appended) -> None:
            status = SEND_STATUSES.get(code)
            if status is None:
                sent.errback(BrokerError(queue.broker_name, code, REMARKS.get(code)))
                return
            sent.callback(
                SendResult(
                    status,
                    prepared.message_id,
                    appended.message_ids,
                    queue,
                    appended.queue_offset,
                    prepared.message_id,
                )
            )

        header = send_header(prepared, prepared.topic, queue, outgoing.born_timestamp)
        try:
            stored = plain.store(header, properties, prepared.body, self._own, done)
        except Exception as error:
            # As where a handler fails: another broker may take it.
            log.failure("storing a message of {topic} failed", topic=prepared.topic)
            reason = f"the broker failed with {type(error).__name__}; its log says more"
            return fail(BrokerError(queue.broker_name, ResponseCode.SYSTEM_ERROR, reason))
        return sent if stored else None

    def _timed_out(self, result: Any, timeout: float) -> Any:
        """Tells who waits for a message to be safe that it was not within `timeout` seconds."""
        if isinstance(result, Failure) and result.check(CancelledError):
            address = self._own.local_address
            raise RequestTimeout(address, RequestCode.SEND_MESSAGE_V2, timeout)
        return result

    def _pop(
        self, request: RemotingCommand, timeout: float, client: IProxyClient | None
    ) -> Deferred[RemotingCommand]:
        local_address = self._own.local_address
        address = local_address if client is None else client.address
        peer = InProcessPeer(address, local_address)
        handlers = self._broker.listener.handlers
        answer = call_handler(handlers, request, peer, timeout, self._clock)
        if answer.called:
            return answer
        pops = self._pops.setdefault(client, {})
        pops[request.opaque] = _Pop(peer, answer)

        def ended(result: RemotingCommand | Failure) -> RemotingCommand | Failure:
            if isinstance(result, Failure) and not peer.connected and result.check(RequestTimeout):
                # It was withdrawn, and nothing was popped for it by then.
                result = request.response(ResponseCode.POLLING_TIMEOUT)
            peer.leave()
            del pops[request.opaque]
            if not pops:
                del self._pops[client]
            return result

        return answer.addBoth(ended)

    def _withdraw(self, pop: _Pop) -> None:
        pop.peer.leave()
        # The broker answers only where it has popped something by now.
        pop.answer.addTimeout(_STORE_SECONDS, self._clock)

    def _leave(self, client: IProxyClient) -> None:
        peer = self._peers.pop(client, None)
        if peer is not None:
            peer.leave()

    def _unregister(self, client: IProxyClient, memberships: Collection[Membership]) -> None:
        """Takes a client out of groups at the broker, which closes a connection that is silent
        about one of its groups."""
        peer = self._peers.get(client)
        if peer is None or not peer.connected:
            return
        for membership in memberships:
            request = unregistration_of(client.client_id, membership)
            handlers = self._broker.listener.handlers
            call_handler(handlers, request, peer, _ONEWAY_SECONDS, self._clock)

    def _peer_of(self, request: RemotingCommand, client: IProxyClient | None) -> InProcessPeer:
        if client is None:
            return self._own
        peer = self._peers.get(client)
        if peer is not None and peer.connected:
            return peer
        if request.code != RequestCode.HEART_BEAT:
            return self._own
        # The broker may have closed the former one.
        peer = self._peers[client] = self._peer(client.address, client)
        return peer

    def _peer(self, address: str, client: IProxyClient | None = None) -> InProcessPeer:
        broker = self._broker.addresses
        local_address = join_address(broker.ip, broker.port)
        if client is None:
            return InProcessPeer(local_address, local_address)

        def ask(request: RemotingCommand, timeout: float) -> Deferred[RemotingCommand]:
            request.ext_fields.setdefault("bname", self._name)
            return client.ask(request, timeout)

        return InProcessPeer(address, local_address, ask)
