"""Registers the gRPC clients of a proxy with brokers, as classic clients register themselves: so
that brokers ask them, and tools see them. Other proxies are told of them too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from google.protobuf.json_format import MessageToJson, SerializeToJsonError
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.networks import host_of
from rocketmq_tw.proxy.broker_lines import BrokerLines
from rocketmq_tw.proxy.brokers import IBrokers, unseen_groups
from rocketmq_tw.proxy.clients import ProxyClient, ProxyClients
from rocketmq_tw.proxy.heartbeat_sync.telling import Telling
from rocketmq_tw.proxy.memberships import groups_of_heartbeat
from rocketmq_tw.proxy.messaging.subscriptions import heartbeat_of, origin_of
from rocketmq_tw.proxy.proto.messages import Settings, as_original
from rocketmq_tw.proxy.topic_brokers import find_brokers
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.runtime.fairness import FewAtOnce
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.clients import HeartbeatData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import LanguageCode, RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Seconds between two heartbeats of all clients to their brokers, and scans for silent clients.
_HEARTBEAT_SECONDS = 20.0
_SCAN_SECONDS = 10.0
#: Clients that one broker is told of at the same time.
_AT_ONCE = 16
_ANSWER_SECONDS = 3.0
#: Bytes of heartbeats that are kept; those beyond are made again each time.
MAX_KEPT_BYTES = 128 * 1024 * 1024


class _Heartbeat(NamedTuple):
    """What brokers are told of a client, as long as it does not tell other settings: that of many
    subscriptions takes 10 ms to make."""

    settings: Settings
    #: Of the settings.
    digest: bytes
    #: The version of its subscriptions: when it told them, in ms since 1970.
    since_ms: int
    body: bytes


class ClientRegistration:
    """Tells brokers of clients: at once of those that come, change or go, and again and again of
    all. A broker that hangs is told late, and holds up no other."""

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        brokers: IBrokers,
        clients: ProxyClients,
        in_slices: Slices,
        telling: Telling,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._clock = clock
        self._brokers = brokers
        self._clients = clients
        self._in_slices = in_slices
        self._other_proxies = telling
        self._now_ms = now_ms
        self._said_refused = BrokerLines(clock)
        self._said_untold = BrokerLines(clock)
        self._heartbeats: dict[ProxyClient, _Heartbeat] = {}
        self._kept_bytes = 0
        #: Clients whose brokers are to be found.
        self._searching: FewAtOnce[ProxyClient] = FewAtOnce(_AT_ONCE)
        #: Broker name -> clients that it is to be told of.
        self._telling: defaultdict[str, FewAtOnce[ProxyClient]] = defaultdict(
            lambda: FewAtOnce(_AT_ONCE)
        )
        self._periodic = [
            PeriodicCall(
                clock, "registering clients", _HEARTBEAT_SECONDS, self._register_all, may_hang=True
            ),
            PeriodicCall(clock, "the scan for silent clients", _SCAN_SECONDS, self._expire),
        ]
        clients.settled.add(self._register)
        clients.gone.add(brokers.forget)
        clients.gone.add(telling.gone)
        clients.gone.add(self._drop)

    def start(self) -> None:
        """Registers clients again and again from now on."""
        for periodic in self._periodic:
            periodic.start()

    def stop(self) -> None:
        """Does no more by itself."""
        for periodic in self._periodic:
            periodic.stop()
        for waiting in (self._searching, *self._telling.values()):
            waiting.clear()

    def _expire(self) -> Deferred[object]:
        # Brokers come and go, too.
        for name in [name for name, telling in self._telling.items() if not telling.is_busy]:
            del self._telling[name]
        return self._in_slices(self._clients.expire())

    def _register_all(self) -> Deferred[object]:
        def steps() -> Iterator[None]:
            for client in self._clients:
                self._register(client)
                yield

        return self._in_slices(steps())

    def _register(self, client: ProxyClient) -> None:
        self._searching.add(
            client,
            lambda: Deferred.fromCoroutine(self._find_brokers_of(client)),
            host_of(client.address),
        )

    async def _find_brokers_of(self, client: ProxyClient) -> None:
        """Has the brokers of a client's topics be told of it."""
        topics = client.topics

        def is_wanted() -> bool:
            # Where it told other ones meanwhile their brokers are looked for too.
            return self._is_here(client) and client.topics is topics

        try:
            found = await find_brokers(self._clock, self._brokers, topics, is_wanted)
        except RequestError as error:
            self.log.warn(
                "client {client} is not registered with brokers: {error}",
                client=client.client_id,
                error=error,
            )
            return
        if not is_wanted():
            return
        heartbeat = self._heartbeat(client)
        data = decode_body(HeartbeatData, heartbeat.body)
        groups = [each.group_name for each in data.consumer_data_set]
        if found.is_complete and not found.names:
            # Topics need not exist: its groups would fill a connection that others need.
            self._brokers.forget(client)
            self._tell_other_proxies(client, data, heartbeat, ())
            return
        try:
            self._brokers.enter(
                client, groups_of_heartbeat(data), found.names if found.is_complete else None
            )
        except RequestError as error:
            self.log.warn(
                "client {client} is not registered with brokers: {error}",
                client=client.client_id,
                error=error,
            )
            self._tell_other_proxies(client, data, heartbeat, groups)
            return
        unseen = unseen_groups(self._brokers, client, groups)
        self._tell_other_proxies(client, data, heartbeat, unseen)
        for name in found.names:
            self._telling[name].add(client, partial(self._tell, name, client, heartbeat.body))

    def _heartbeat(self, client: ProxyClient) -> _Heartbeat:
        """Returns what is told of a client, made again where its settings are others."""
        settings = client.settings or Settings()
        known = self._heartbeats.get(client)
        if known is not None and known.settings is settings:
            return known
        text = settings.SerializeToString(deterministic=True)
        digest = blake2b(text, digest_size=16).digest()
        if known is not None and known.digest == digest:
            made = known._replace(settings=settings)
        else:
            # Brokers take later subscriptions only.
            since_ms = max(self._now_ms(), 0 if known is None else known.since_ms + 1)
            body = encode_body(heartbeat_of(client, since_ms))
            made = _Heartbeat(settings, digest, since_ms, body)
        self._drop(client)
        self._heartbeats[client] = made
        self._kept_bytes += len(made.body)
        while self._kept_bytes > MAX_KEPT_BYTES:
            self._drop(next(iter(self._heartbeats)))
        return made

    def _drop(self, client: ProxyClient) -> None:
        """Keeps the heartbeat of a client no more."""
        dropped = self._heartbeats.pop(client, None)
        if dropped is not None:
            self._kept_bytes -= len(dropped.body)

    def _tell_other_proxies(
        self,
        client: ProxyClient,
        data: HeartbeatData,
        heartbeat: _Heartbeat,
        unseen: Collection[str],
    ) -> None:
        """Tells them of a consumer, and in which of its groups brokers do not see it."""
        if not data.consumer_data_set:
            self._other_proxies.gone(client)
            return
        self._other_proxies.heard(
            client,
            origin_of(client),
            data.consumer_data_set,
            heartbeat.digest,
            lambda _: _as_json(heartbeat.settings),
            unseen,
        )

    def _tell(self, name: str, client: ProxyClient, body: bytes) -> Deferred[None] | None:
        if not self._is_here(client):
            return None
        request = RemotingCommand.request(RequestCode.HEART_BEAT, body=body)
        # Brokers show it as the client's.
        request.language = LanguageCode.__members__.get(client.language, LanguageCode.OTHER)
        asked = self._brokers.ask(name, request, _ANSWER_SECONDS, client)
        return asked.addCallbacks(
            self._registered, self._not_registered, callbackArgs=(name,), errbackArgs=(name,)
        )

    def _is_here(self, client: ProxyClient) -> bool:
        return self._clients.get(client.client_id) is client

    def _registered(self, answer: RemotingCommand, name: str) -> None:
        if answer.code != ResponseCode.SUCCESS and self._said_refused.is_due(name):
            self.log.warn(
                "broker {name} does not register a client: {why}", name=name, why=answer.remark
            )

    def _not_registered(self, failure: Failure, name: str) -> None:
        failure.trap(RemotingError, RequestError)
        if self._said_untold.is_due(name):
            self.log.info(
                "broker {name} cannot be told of a client: {why}",
                name=name,
                why=failure.getErrorMessage(),
            )


def _as_json(settings: Settings) -> str | None:
    """Returns settings as JSON; None where JSON has no words for them, such as for a duration whose
    nanoseconds are seconds."""
    try:
        return MessageToJson(as_original(settings), indent=None)
    except (SerializeToJsonError, ValueError):
        return None
