"""This broker's place in the cluster: its registration with all name servers.

In full every registerNameServerPeriod (103), at once with what changed when a topic does, and
taken back at the end (104). A name server that is down is passed over, and asked again and again
until it has everything. What name servers answer about the master and ordered topics is handed on.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
from twisted.internet.defer import (
    Deferred,
    DeferredList,
    DeferredLock,
    inlineCallbacks,
    succeed,
)
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Addresses
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.tables.topics.announcements import Announcements
from rocketmq_tw.broker.tables.topics.queue_mappings import QueueMappings
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.net.address import split_addresses
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.runtime.slices import InSlices, all_steps
from rocketmq_tw.runtime.threads import InThread, at_once
from rocketmq_tw.runtime.waiters import fire_all
from rocketmq_tw.wire import permissions
from rocketmq_tw.wire.bodies.base import DataVersion, decode_body, encode_body
from rocketmq_tw.wire.bodies.registration import RegisterBrokerBody, encode_registration
from rocketmq_tw.wire.bodies.route import QueueData, TopicRouteData
from rocketmq_tw.wire.bodies.stats import KVTable
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.namesrv import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
)

#: Seconds; as stock waits.
UNREGISTER_TIMEOUT = 3.0
REGISTER_TOPIC_TIMEOUT = 3.0
#: Topics of one registration: stock's frames have 16 MiB, and a topic takes 600 bytes at most.
MAX_TOPICS = 20_000

log = Logger()


class Master(NamedTuple):
    """What a name server says of the master of a slave's broker name; empty where it has none."""

    address: str
    ha_address: str


class MasterListener(Protocol):
    def __call__(self, master: Master) -> None: ...


class Membership:
    """Registers under `addresses`, while the broker has a role: one that is isolated, or on its way
    into a role, is not seen."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        mappings: QueueMappings,
        client: IRemotingClient,
        addresses: Addresses,
        announcements: Announcements,
        role: RoleHolder,
        in_thread: InThread = at_once,
        in_slices: InSlices = all_steps,
    ) -> None:
        self._in_slices = in_slices
        self._in_thread = in_thread
        self._config = config
        self._topics = topics
        self._mappings = mappings
        self._announcements = announcements
        self._client = client
        self._addresses = addresses
        self._role = role
        #: What is registered is encoded one after the other, and so leaves in order.
        self._encoding = DeferredLock()
        #: Topics that changed while that goes on, and who waits until they are registered.
        self._changed: dict[str, TopicConfig] = {}
        self._changed_waiting: list[Deferred[None]] = []
        self._is_split = False
        #: The ordered topics as they were told last, and the version of the topics then.
        self._ordered: tuple[bytes, DataVersion | None] = (b"", None)
        self._left = False
        #: Whether the broker is what its role says; it is not seen before.
        self.is_ready = True
        self._unreachable: set[str] = set()
        self._sent_version: DataVersion | None = None
        self._registered_at: set[str] = set()
        self._waiting: list[tuple[str, Deferred[None]]] = []
        self._listeners: list[MasterListener] = []
        topics.changed.add(self._topics_changed)

    @property
    def name_servers(self) -> list[str]:
        """`namesrvAddr` as addresses."""
        return split_addresses(self._config.namesrv_addr)

    def on_master(self, listener: MasterListener) -> None:
        """Adds a listener to the master's address in answers to registrations."""
        self._listeners.append(listener)

    def when_registered(self, name_server: str) -> Deferred[None]:
        """Fires once this name server, one of `name_servers`, has taken a registration."""
        if name_server in self._registered_at:
            return succeed(None)
        registered: Deferred[None] = Deferred()
        self._waiting.append((name_server, registered))
        return registered

    def register(self, force: bool | None = None) -> Deferred[None]:
        """Registers everything; unless forced, only where a name server knows another version.

        Fires when all name servers have answered or failed; never fails.
        """
        if self._is_unseen():
            return succeed(None)
        if self._config.force_register if force is None else force:
            return self._send_all()
        return self._any_outdated().addCallback(
            lambda outdated: self._send_all() if outdated else None
        )

    def retry(self) -> Deferred[None]:
        """Registers everything with the name servers that could not be reached last time."""
        if self._is_unseen() or not self._unreachable:
            return succeed(None)
        return self._send_all(sorted(self._unreachable))

    def leave(self) -> Deferred[None]:
        """Takes the registration back; fires when all name servers have answered or failed."""
        self._left = True
        header = UnRegisterBrokerRequestHeader(
            broker_name=self._config.broker_name,
            broker_addr=self._addresses.broker,
            cluster_name=self._config.broker_cluster_name,
            broker_id=self._role.state.broker_id,
        )
        return self._ask_all(RequestCode.UNREGISTER_BROKER, header, b"", UNREGISTER_TIMEOUT)

    def _is_unseen(self) -> bool:
        has_role = self.is_ready and self._role.role is not Role.ISOLATED
        return self._left or not has_role or not self._config.namesrv_addr

    def _topics_changed(self, topics: Sequence[TopicConfig], kept: Deferred[None]) -> None:
        if self._left:
            return
        changed = {topic.topic_name: topic for topic in topics}
        self._announcements.begin(changed, kept, lambda: self._register_changed(changed))

    def _register_changed(self, changed: Mapping[str, TopicConfig]) -> Deferred[Any]:
        if self._is_unseen():
            return succeed(None)
        if self._config.enable_single_topic_register and not self._mappings.shown(changed):
            return DeferredList([self._send_topic(topic) for topic in changed.values()])
        self._changed.update(changed)
        registered: Deferred[None] = Deferred()
        self._changed_waiting.append(registered)
        if len(self._changed_waiting) == 1:
            self._encoding.run(self._send_changed)
        return registered

    def _send_changed(self) -> Deferred[None]:
        """One registration of all that changed while the one before was made; fires once it is on
        its way."""
        changed, self._changed = self._changed, {}
        waiting, self._changed_waiting = self._changed_waiting, []

        def registered(result: object) -> None:
            if isinstance(result, Failure):
                log.failure("registering {n} topics", failure=result, n=len(changed))
            self._in_slices(fire_all(waiting, None))

        if self._topics.data_version == self._sent_version:
            # What was kept with others has their version, which would be passed over now.
            self._topics.touch()
        sent: Deferred[None] = Deferred()
        self._send_parts(changed, None, sent).addBoth(registered)
        return sent

    def _send_all(self, to: Sequence[str] | None = None) -> Deferred[None]:
        """Registers all topics; with all name servers, or only some."""
        registered: Deferred[None] = Deferred()

        def send() -> Deferred[None]:
            sent: Deferred[None] = Deferred()
            self._send_parts(self._topics.all(), to, sent).chainDeferred(registered)
            return sent

        self._encoding.run(send)
        return registered

    @inlineCallbacks
    def _send_parts(
        self, topics: Mapping[str, TopicConfig], to: Sequence[str] | None, sent: Deferred[None]
    ) -> Generator[Deferred[Any], Any, None]:
        """In parts where there are many, or enableSplitRegistration wants them; `sent` fires once
        all are on their way."""
        size = MAX_TOPICS
        if self._config.enable_split_registration:
            size = min(size, self._config.split_registration_size)
        names = list(topics)
        self._say_split(len(names), size)
        answered = []
        try:
            for start in range(0, max(1, len(names)), size):
                if start:
                    # A second part of the same version would be passed over.
                    self._topics.touch()
                part = {
                    name: topics[name] for name in names[start : start + size] if name in topics
                }
                body, crc = yield self._encode(part)
                if self._is_unseen():
                    return
                answered.append(self._send_body(body, crc, to))
        finally:
            sent.callback(None)
        yield DeferredList(answered)

    def _say_split(self, topics: int, size: int) -> None:
        if topics > size and not (self._is_split or self._config.enable_split_registration):
            self._is_split = True
            log.info(
                "{n} topics are registered {size} at a time, since frames have a limit: name"
                " servers with deleteTopicWithBrokerRegistration=true would keep the last of them"
                " only, so switch that off there",
                n=topics,
                size=size,
            )

    def _encode(self, topics: Mapping[str, TopicConfig]) -> Deferred[tuple[bytes, int]]:
        """The body of a registration, with the version of now, and its checksum: made in a
        thread."""
        table = self._topics.table(topics)
        table.topic_queue_mapping_info_map = self._mappings.shown(topics)
        self._sent_version = table.data_version
        compressed, permitted = self._config.compressed_register, self._config.broker_permission

        def encode() -> tuple[bytes, int]:
            if permissions.is_readable(permitted) and permissions.is_writable(permitted):
                if not compressed:
                    raw: Any = msgspec.Raw(self._topics.encode(table, whole=False))
                    data = encode_body(RegisterBrokerBody(topic_config_serialize_wrapper=raw))
                    return data, zlib.crc32(data)
            else:
                table.topic_config_table = {
                    name: _as_permitted(topic, permitted)
                    for name, topic in table.topic_config_table.items()
                }
            body = RegisterBrokerBody(topic_config_serialize_wrapper=table)
            data = encode_registration(body, compressed=compressed)
            return data, zlib.crc32(data)

        return self._in_thread(encode)

    def _send_body(self, body: bytes, crc: int, to: Sequence[str] | None) -> Deferred[None]:
        config = self._config
        header = RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self._addresses.broker,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=self._addresses.ha,
            broker_id=self._role.state.broker_id,
            enable_acting_master=False,
            # Stock 5.3.3 says "not compressed" of a compressed body; name servers then refuse it.
            compressed=not body.startswith(b"{"),
            body_crc32=crc & 0x7FFFFFFF,
        )
        timeout = config.register_broker_timeout_mills / 1000
        return self._ask_all(
            RequestCode.REGISTER_BROKER, header, body, timeout, self._registered, to
        )

    def _tell_again(self, name_server: str) -> None:
        """A name server passes over a version that it knows, even if it missed what led there; so
        one that is back gets everything in a new one. The others have nothing to learn from it."""
        if not self._is_unseen():
            self._topics.touch()
            self._send_all([name_server])

    def _send_topic(self, topic: TopicConfig) -> Deferred[None]:
        config = _as_permitted(topic, self._config.broker_permission)
        route = TopicRouteData(
            queue_datas=[
                QueueData(
                    broker_name=self._config.broker_name,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=config.perm,
                    topic_sys_flag=config.topic_sys_flag,
                )
            ]
        )
        return self._ask_all(
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            RegisterTopicRequestHeader(topic=topic.topic_name),
            encode_body(route),
            REGISTER_TOPIC_TIMEOUT,
        )

    def _registered(self, response: RemotingCommand, name_server: str) -> None:
        if name_server not in self._registered_at:
            self._registered_at.add(name_server)
            log.info(
                "broker {name} is registered with name server {name_server}",
                name=self._config.broker_name,
                name_server=name_server,
            )
            served = [waiter for waiter in self._waiting if waiter[0] == name_server]
            self._waiting = [waiter for waiter in self._waiting if waiter not in served]
            for _, registered in served:
                registered.callback(None)
        header = response.header(RegisterBrokerResponseHeader)
        if header.master_addr or header.ha_server_addr:
            for listener in self._listeners:
                listener(Master(header.master_addr or "", header.ha_server_addr or ""))
        seen = (response.body, self._topics.data_version)
        if response.body and seen != self._ordered:
            self._ordered = seen
            self._topics.mark_ordered(decode_body(KVTable, response.body).table)

    def _any_outdated(self) -> Deferred[bool]:
        """Whether some name server has another version of the topics, or cannot say."""
        config = self._config
        version = self._topics.data_version
        header = QueryDataVersionRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self._addresses.broker,
            cluster_name=config.broker_cluster_name,
            broker_id=self._role.state.broker_id,
        )
        body = encode_body(version)
        timeout = config.register_broker_timeout_mills / 1000

        def is_outdated(response: RemotingCommand) -> bool:
            if response.code != ResponseCode.SUCCESS:
                return True
            changed = response.header(QueryDataVersionResponseHeader).changed
            known = decode_body(DataVersion, response.body) if response.body else version
            return changed or known != version

        def ask(address: str) -> Deferred[bool]:
            command = RemotingCommand.request(RequestCode.QUERY_DATA_VERSION, header, body)
            answered = self._client.request(address, command, timeout)
            return answered.addCallback(is_outdated).addErrback(lambda _: True)

        asked = DeferredList([ask(address) for address in self.name_servers])
        return asked.addCallback(lambda results: any(outdated for _, outdated in results))

    def _ask_all(
        self,
        code: int,
        header: Header,
        body: bytes,
        timeout: float,
        take: Callable[[RemotingCommand, str], None] | None = None,
        to: Sequence[str] | None = None,
    ) -> Deferred[None]:
        """One request to every name server, or to some; `take` gets each answer of success and
        whose it is."""

        def answered(response: RemotingCommand, address: str) -> None:
            if response.code != ResponseCode.SUCCESS:
                log.warn(
                    "name server {address} answers request {code} with {response}",
                    address=address,
                    code=int(code),
                    response=response,
                )
                return
            if take is not None:
                take(response, address)
            if address in self._unreachable:
                self._unreachable.discard(address)
                log.info("name server {address} is back", address=address)
                self._tell_again(address)

        def failed(failure: Failure, address: str) -> None:
            if address not in self._unreachable:
                self._unreachable.add(address)
                log.warn(
                    "name server {address} is passed over: {why}",
                    address=address,
                    why=failure.getErrorMessage(),
                )

        asked = []
        for address in self.name_servers if to is None else to:
            command = RemotingCommand.request(code, header, body)
            request = self._client.request(address, command, timeout)
            request.addCallback(answered, address).addErrback(failed, address)
            asked.append(request)
        return DeferredList(asked).addCallback(lambda _: None)


def _as_permitted(topic: TopicConfig, permitted: int) -> TopicConfig:
    """The topic as clients may use it: a broker without permission takes its topics' away."""
    if permissions.is_readable(permitted) and permissions.is_writable(permitted):
        return topic
    return msgspec.structs.replace(topic, perm=topic.perm & permitted)
