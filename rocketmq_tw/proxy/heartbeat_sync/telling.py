"""Tells other proxies of the consumers of this one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.brokers import IProxyClient
from rocketmq_tw.proxy.heartbeat_sync.records import (
    MAX_RECORD_BYTES,
    REGISTER,
    UNREGISTER,
    Origin,
    ProxyIdentity,
    encode_consumer,
)
from rocketmq_tw.proxy.heartbeat_sync.topic import HeartbeatSyncTopic
from rocketmq_tw.proxy.memberships import Membership
from rocketmq_tw.runtime.fairness import FewAtOnce
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.wire.bodies.clients import ConsumerData
from rocketmq_tw.wire.errors import RequestError

#: Seconds after which the same is told again: brokers' clients send a heartbeat every 30, and a
#: stock proxy forgets whom it hears nothing of for 120.
_AGAIN_SECONDS = 25.0
#: Messages on their way at the same time, and bytes that wait for their turn; what goes beyond is
#: told with the next heartbeat.
_AT_ONCE = 16
MAX_WAITING_BYTES = 16 * 1024 * 1024
#: Seconds that a proxy that stops takes to say that its clients are gone.
GOODBYE_SECONDS = 5.0

log = Logger()

#: The settings of a gRPC client, or the subscriptions of a classic one, as JSON.
ConsumerAttribute = Callable[[ConsumerData], str | None]


@attrs.define(eq=False)
class _Told:
    """A client, and what was told of it last: group -> (digest, when)."""

    origin: Origin
    groups: dict[str, tuple[bytes, float]] = attrs.field(factory=dict)


class Telling:
    """Keeps what was told of whom. Nothing is told before `start` and after `stop`."""

    def __init__(
        self,
        clock: IReactorTime,
        topic: HeartbeatSyncTopic,
        identity: ProxyIdentity,
        now_ms: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._topic = topic
        self._identity = identity
        self._is_running = False
        self._clients: dict[IProxyClient, _Told] = {}
        self._queue: FewAtOnce[tuple[IProxyClient, str]] = FewAtOnce(_AT_ONCE)
        #: What waits in `_queue`.
        self._waiting: dict[tuple[IProxyClient, str], bytes] = {}
        self._waiting_bytes = 0
        self._under_way = 0
        self._idle: Waiters[None] = Waiters()
        self._fails = False

    def start(self) -> None:
        """Tells from now on."""
        self._is_running = True

    def stop(self) -> Deferred[None]:
        """Says that all clients are gone, and tells no more; fires when that is said, after
        `GOODBYE_SECONDS` at the latest."""
        for client in tuple(self._clients):
            self.gone(client)
        self._is_running = False
        said = self._idle.wait()
        said.addTimeout(GOODBYE_SECONDS, self._clock, onTimeoutCancel=self._give_up)
        self._look_idle()
        return said

    def heard(
        self,
        client: IProxyClient,
        origin: Origin,
        consumers: Iterable[ConsumerData],
        digest: bytes,
        attribute: ConsumerAttribute,
        unseen: Collection[str] = (),
    ) -> None:
        """Takes a heartbeat of a client, with all groups that it consumes in; `digest` is another
        one where something in it is. In the groups `unseen` brokers do not know it."""
        if not self._is_running:
            return
        told = self._clients.get(client)
        if told is not None and told.origin != origin:
            self.gone(client)
            told = None
        by_group = {consumer.group_name: consumer for consumer in consumers}
        if told is None:
            if not by_group:
                return
            told = self._clients[client] = _Told(origin)
        self.left(client, told.groups.keys() - by_group.keys())
        now = self._clock.seconds()
        for group, consumer in by_group.items():
            is_known = group not in unseen
            told_digest = digest + b"%d" % is_known
            known, at = told.groups.get(group, (b"", 0.0))
            if known == told_digest and now - at < _AGAIN_SECONDS:
                continue
            body = self._encode(REGISTER, origin, consumer, attribute(consumer), is_known=is_known)
            # Before it is sent, which may fail at once.
            self._clients[client] = told
            told.groups[group] = told_digest, now
            if body is None or not self._put((client, group), body):
                self._forget(client, group)

    def left(self, client: IProxyClient, groups: Iterable[str]) -> None:
        """Takes a client out of groups, as far as it was told to be in them."""
        told = self._clients.get(client)
        if told is None:
            return
        for group in tuple(groups):
            if told.groups.pop(group, None) is not None:
                consumer = ConsumerData(group_name=group)
                body = self._encode(UNREGISTER, told.origin, consumer, None)
                if body is not None:
                    self._put((client, group), body)
        if not told.groups:
            self._clients.pop(client, None)

    def left_memberships(self, client: IProxyClient, memberships: Iterable[Membership]) -> None:
        """Takes a client out of the groups of these memberships that it consumed in."""
        self.left(client, [each.group for each in memberships if each.is_consumer])

    def gone(self, client: IProxyClient) -> None:
        """Takes a client out of all groups."""
        told = self._clients.get(client)
        if told is not None:
            self.left(client, told.groups)

    def _encode(
        self,
        kind: str,
        origin: Origin,
        consumer: ConsumerData,
        attribute: str | None,
        *,
        is_known: bool = True,
    ) -> bytes | None:
        now_ms = self._now_ms()
        for each in (attribute, None):
            body = encode_consumer(
                kind,
                self._identity,
                origin,
                consumer,
                now_ms,
                attribute=each,
                is_known_to_brokers=is_known,
            )
            if len(body) <= MAX_RECORD_BYTES:
                return body
        return None

    def _put(self, key: tuple[IProxyClient, str], body: bytes) -> bool:
        former = self._waiting.get(key, b"")
        if self._waiting_bytes + len(body) - len(former) > MAX_WAITING_BYTES:
            return False
        self._waiting_bytes += len(body) - len(former)
        self._waiting[key] = body
        self._queue.add(key, lambda: Deferred.fromCoroutine(self._send(key)))
        return True

    async def _send(self, key: tuple[IProxyClient, str]) -> None:
        body = self._waiting.pop(key, b"")
        self._waiting_bytes -= len(body)
        if not body:
            return
        client, group = key
        self._under_way += 1
        try:
            await self._topic.send(body, f"{group}@{client.client_id}")
            self._fails = False
        except (RemotingError, RequestError, BrokerError) as error:
            if not self._fails:
                log.warn("other proxies hear nothing of consumers here: {error}", error=error)
            self._fails = True
            self._forget(client, group)
        finally:
            self._under_way -= 1
            self._look_idle()

    def _forget(self, client: IProxyClient, group: str) -> None:
        """Has the next heartbeat be told again."""
        told = self._clients.get(client)
        if told is not None and group in told.groups:
            told.groups[group] = b"", 0.0

    def _look_idle(self) -> None:
        if not self._is_running and not self._waiting and not self._under_way:
            self._idle.fire(None)

    def _give_up(self, result: object, seconds: float) -> None:
        self._queue.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
