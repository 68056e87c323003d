"""The gRPC clients of a proxy: who is connected, and what each of them told of itself.

A client comes with its settings over a Telemetry stream, stays while it is heard, and goes with
NotifyClientTermination or when it is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from rocketmq_tw.interpreter import IS_PYPY
from rocketmq_tw.net.host_shares import HostShares
from rocketmq_tw.net.networks import host_of, is_same_host
from rocketmq_tw.proxy.brokers import IProxyClient
from rocketmq_tw.proxy.grpc.interfaces import GrpcError, GrpcStatus, ICall
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.wire.command import RemotingCommand

#: Clients of one proxy, whose settings stay in memory. Of these and of the bytes below, hosts that
#: have little may have some of half as much again.
MAX_CLIENTS = 50_000
#: Topics that one client may name.
MAX_CLIENT_TOPICS = 4096
#: Bytes that the settings of one client may take, and those of all.
MAX_SETTINGS_BYTES = 256 * 1024
MAX_ALL_SETTINGS_BYTES = 128 * 1024 * 1024
#: What each object in settings, or tag, takes beside its bytes on the wire.
_OBJECT_BYTES = 200 if IS_PYPY else 64
_MOST_ADDRESSES = 64
#: Characters of the name of a client's language.
_MAX_LANGUAGE = 32
#: Clients that one step of a scan visits.
_STEP = 500

log = Logger()

#: Hands on a request of a broker to a client, with the seconds that it gets for its answer.
HandOn = Callable[["ProxyClient", RemotingCommand, float], Deferred[RemotingCommand]]


@implementer(IProxyClient)
class ProxyClient:
    """One gRPC client; what it told last is in `settings`, as it told it."""

    def __init__(self, client_id: str, address: str, language: str, hand_on: HandOn) -> None:
        self.client_id = client_id
        self.address = address
        #: As in the metadata of its calls: `JAVA`, `PYTHON` ...
        self.language = language
        self.settings: pb.Settings | None = None
        #: Bytes that they take, see `settings_size`.
        self.settings_size = 0
        #: The consumer group on the wire; empty for a producer.
        self.group = ""
        #: Topics on the wire: those that it sends to, or subscribes to.
        self.topics: Collection[str] = ()
        #: Its open Telemetry stream.
        self.stream: ICall | None = None
        #: When it was heard last, in seconds of the registry's clock.
        self.heard_at = 0.0
        self._hand_on = hand_on

    @property
    def client_type(self) -> int:
        """A value of `ClientType`, unspecified where it has told nothing."""
        return pb.CLIENT_TYPE_UNSPECIFIED if self.settings is None else self.settings.client_type

    @property
    def is_consumer(self) -> bool:
        """Whether it has told what it subscribes to."""
        return self.settings is not None and self.settings.HasField("subscription")

    @property
    def has_stream(self) -> bool:
        """Whether its Telemetry stream is open."""
        return self.stream is not None and not self.stream.is_over

    def is_from_host_of(self, call: ICall) -> bool:
        """Returns whether a call comes from the host that the client told its settings from. The
        port differs where a load balancer makes connections of its own."""
        return is_same_host(call.address, self.address)

    def tell(self, command: pb.TelemetryCommand) -> bool:
        """Sends a command over the client's stream; returns False where it has none."""
        if self.stream is None or not self.has_stream:
            return False
        self.stream.send(command)
        return True

    def ask(self, request: RemotingCommand, timeout: float) -> Deferred[RemotingCommand]:
        return self._hand_on(self, request, timeout)


def count_tags(settings: pb.Settings) -> int:
    """Returns how many tags the subscriptions of settings have together, at least one each."""
    entries = settings.subscription.subscriptions
    return sum([entry.expression.expression.count("||") + 1 for entry in entries])


def settings_size(settings: pb.Settings) -> int:
    """Returns the bytes that settings take in memory, roughly; raises `GrpcError`
    (INVALID_ARGUMENT) where they are too many."""
    size = settings.ByteSize()
    if size > MAX_SETTINGS_BYTES:
        raise GrpcError(
            GrpcStatus.INVALID_ARGUMENT,
            f"settings of {size} bytes, {MAX_SETTINGS_BYTES} are the limit: name fewer topics an"
            " instance",
        )
    addresses = len(settings.access_point.addresses) + len(settings.metric.endpoints.addresses)
    if addresses > _MOST_ADDRESSES:
        raise GrpcError(
            GrpcStatus.INVALID_ARGUMENT,
            f"settings with {addresses} addresses, {_MOST_ADDRESSES} are the limit: name fewer",
        )
    objects = (
        len(settings.publishing.topics)
        + 3 * len(settings.subscription.subscriptions)
        + len(settings.backoff_policy.customized_backoff.next)
        + count_tags(settings)
    )
    return size + _OBJECT_BYTES * objects


class ProxyClients:
    """The connected gRPC clients by id. `seconds` is a clock that is never set; a client is gone
    after `silence` seconds without a heartbeat or settings."""

    def __init__(
        self, seconds: Callable[[], float], hand_on: HandOn, silence: Callable[[], float]
    ) -> None:
        self._seconds = seconds
        self._hand_on = hand_on
        self._silence = silence
        self._clients: dict[str, ProxyClient] = {}
        #: The clients, and the bytes of their settings.
        self._hosts = HostShares()
        self._bytes = HostShares()
        #: Told of each client that has told its settings.
        self.settled: Listeners[ProxyClient] = Listeners("a client told its settings")
        #: Told of each client that is gone.
        self.gone: Listeners[ProxyClient] = Listeners("a client is gone")

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[ProxyClient]:
        return iter(list(self._clients.values()))

    def get(self, client_id: str) -> ProxyClient | None:
        """Returns the client with an id; None where no such client is connected."""
        return self._clients.get(client_id)

    def settle(
        self,
        client_id: str,
        call: ICall,
        settings: pb.Settings,
        group: str,
        topics: Collection[str],
    ) -> ProxyClient:
        """Takes over what a client tells over its stream `call`; raises `GrpcError` where there is
        no room for it, or another host's client of this id is connected."""
        client = self._clients.get(client_id)
        if client is not None and client.has_stream and not client.is_from_host_of(call):
            raise GrpcError(
                GrpcStatus.ALREADY_EXISTS,
                f"a client {client_id} is connected from another host: give each an id of its own",
            )
        size = settings_size(settings)
        self._check_room(client, call, size)
        if client is None:
            language = call.metadata.get("x-mq-language", "")[:_MAX_LANGUAGE]
            client = ProxyClient(client_id, call.address, language, self._hand_on)
        else:
            self._discard(client)
        self._clients[client_id] = client
        client.address = call.address
        client.settings, client.settings_size = settings, size
        self._hosts.add(host_of(client.address))
        self._bytes.add(host_of(client.address), size)
        client.group, client.topics = group, topics
        client.heard_at = self._seconds()
        self._take_stream(client, call)
        self.settled.tell(client)
        return client

    def heard(self, client: ProxyClient) -> None:
        """Notes that a client lives."""
        client.heard_at = self._seconds()

    def remove(self, client_id: str) -> ProxyClient | None:
        """Forgets a client, which is gone; returns it."""
        client = self._clients.get(client_id)
        if client is None:
            return None
        self._discard(client)
        self.gone.tell(client)
        return client

    def expire(self) -> Iterator[None]:
        """Removes silent clients and ends their streams, in steps between which clients may come
        and go."""
        for number, client in enumerate(self, 1):
            silent_since = self._seconds() - self._silence()
            if client.heard_at < silent_since and self._clients.get(client.client_id) is client:
                log.info(
                    "client {client} is taken for gone: it was silent for too long",
                    client=client.client_id,
                )
                self.remove(client.client_id)
                if client.stream is not None:
                    client.stream.finish(
                        GrpcError(GrpcStatus.UNAVAILABLE, "no heartbeat came: connect again")
                    )
            if number % _STEP == 0:
                yield

    def _check_room(self, client: ProxyClient | None, call: ICall, size: int) -> None:
        """Raises `GrpcError` where there is no room for a client with settings of `size` bytes.
        Once all is taken, hosts that have little may go on."""
        host = host_of(call.address)
        if client is None and not self._hosts.has_room(host, 1, MAX_CLIENTS):
            reason = f"this proxy has {MAX_CLIENTS} clients: use another one"
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, reason)
        grown = size - (0 if client is None else client.settings_size)
        if grown > 0 and not self._bytes.has_room(host, grown, MAX_ALL_SETTINGS_BYTES):
            reason = "no room for the settings of further clients: use another proxy"
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, reason)

    def _discard(self, client: ProxyClient) -> None:
        """Counts a client no more."""
        del self._clients[client.client_id]
        self._hosts.remove(host_of(client.address))
        self._bytes.remove(host_of(client.address), client.settings_size)

    def _take_stream(self, client: ProxyClient, call: ICall) -> None:
        if client.stream is call:
            return
        client.stream = call

        def ended() -> None:
            if client.stream is call:
                client.stream = None

        call.on_end(ended)
