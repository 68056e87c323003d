"""The registration of this broker with all name servers while it has one role.

In full every registerNameServerPeriod (request 103), and at once with what changed when a topic
does. Request and body: docs/formats/bodies.md, "103".
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.wire import permissions
from rocketmq_tw.wire.bodies.base import DataVersion, decode_body, encode_body
from rocketmq_tw.wire.bodies.registration import RegisterBrokerBody, encode_registration
from rocketmq_tw.wire.bodies.route import (
    BrokerMemberGroupBody,
    ClusterInfo,
    QueueData,
    TopicRouteData,
)
from rocketmq_tw.wire.bodies.stats import KVTable
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import WireError
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.namesrv import (
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
)

#: Seconds; as stock waits.
REGISTER_TOPIC_TIMEOUT = 3.0
#: Seconds for the question which brokers are in the group.
MEMBERS_TIMEOUT = 3.0
#: Topics of one registration: stock's frames have 16 MiB, and a topic takes 600 bytes at most.
MAX_TOPICS = 20_000

log = Logger()


class Master(NamedTuple):
    """What a name server says of the master of a slave's broker name; empty where it has none."""

    address: str
    ha_address: str


class NameServerLink:
    """One name server, and what is known of it: whether it answered last, and when, and whether it
    has taken a registration of this broker. `came_back` is told when it answers after it did not;
    `seconds` is the time."""

    def __init__(
        self,
        client: IRemotingClient,
        address: str,
        came_back: Callable[[NameServerLink], object],
        seconds: Callable[[], float],
    ) -> None:
        self._client = client
        self._seconds = seconds
        self._answered_at = 0.0
        self.address = address
        self._came_back = came_back
        self.is_reachable = True
        #: Whether it is to get no registration for now.
        self.is_held = False
        #: Whether it has taken a registration, and not refused a later one.
        self.has_broker = False
        #: Whether it may have this broker: a registration was sent, and not refused.
        self.may_have_broker = False
        self._registered = Waiters[None]()

    def when_registered(self) -> Deferred[None]:
        """Fires once this name server has taken a registration."""
        return succeed(None) if self.has_broker else self._registered.wait()

    def registered(self, broker_name: str) -> None:
        """Notes that it has taken a registration."""
        if not self.has_broker:
            self.has_broker = True
            # Who waits for it says so, in words of its own.
            say = log.debug if len(self._registered) else log.info
            say(
                "broker {name} is registered with name server {name_server}",
                name=broker_name,
                name_server=self.address,
            )
            self._registered.fire(None)

    def forgot(self) -> bool:
        """Notes that it does not list this broker; returns whether it had taken a registration."""
        had_broker, self.has_broker = self.has_broker, False
        return had_broker

    def heard(self) -> None:
        """Notes that it has answered now."""
        self._answered_at = self._seconds()

    @property
    def silent_seconds(self) -> float:
        """Seconds since it has answered; where it never has, since the clock's zero."""
        return self._seconds() - self._answered_at

    def query(self, command: RemotingCommand, timeout: float) -> Deferred[RemotingCommand]:
        """Fires with the answer, whatever its code; fails where none comes within `timeout`
        seconds."""

        def answered(response: RemotingCommand) -> RemotingCommand:
            self.heard()
            return response

        return self._client.request(self.address, command, timeout).addCallback(answered)

    @inlineCallbacks
    def members(self, cluster: str, name: str) -> Generator[Any, Any, Mapping[int, str]]:
        """Fires with the addresses of the brokers of a name, by id; none where this name server
        does not answer. Never fails."""
        header = GetBrokerMemberGroupRequestHeader(cluster_name=cluster, broker_name=name)
        command = RemotingCommand.request(RequestCode.GET_BROKER_MEMBER_GROUP, header)
        try:
            answer = yield self.query(command, MEMBERS_TIMEOUT)
            if answer.code == ResponseCode.SUCCESS:
                group = decode_body(BrokerMemberGroupBody, answer.body).broker_member_group
                return {} if group is None else group.broker_addrs
            # 4.9's name servers tell of the whole cluster only.
            command = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
            answer = yield self.query(command, MEMBERS_TIMEOUT)
            brokers = decode_body(ClusterInfo, answer.body).broker_addr_table
            return brokers[name].broker_addrs if name in brokers else {}
        except (RemotingError, WireError):
            return {}

    def tell(
        self,
        command: RemotingCommand,
        timeout: float,
        take: Callable[[NameServerLink, RemotingCommand], None] | None = None,
    ) -> Deferred[None]:
        """Fires once it has answered, or `timeout` seconds have passed; never fails. `take` is
        given an answer of success."""
        return (
            self.query(command, timeout)
            .addCallback(self._answered, command, take)
            .addErrback(self._failed)
        )

    def _answered(
        self,
        response: RemotingCommand,
        command: RemotingCommand,
        take: Callable[[NameServerLink, RemotingCommand], None] | None,
    ) -> None:
        if response.code != ResponseCode.SUCCESS:
            if command.code == RequestCode.REGISTER_BROKER:
                self.has_broker = self.may_have_broker = False
            log.warn(
                "name server {address} answers request {code} with {response}",
                address=self.address,
                code=int(command.code),
                response=response,
            )
            return
        if take is not None:
            take(self, response)
        if not self.is_reachable:
            self.is_reachable = True
            log.info("name server {address} is back", address=self.address)
            self._came_back(self)

    def _failed(self, failure: Failure) -> None:
        if self.is_reachable:
            self.is_reachable = False
            log.warn(
                "name server {address} is passed over: {why}",
                address=self.address,
                why=failure.getErrorMessage(),
            )


Links = Sequence[NameServerLink]


def tell_all(
    links: Links,
    code: int,
    header: Header,
    body: bytes,
    timeout: float,
    take: Callable[[NameServerLink, RemotingCommand], None] | None = None,
) -> Deferred[None]:
    """Sends one request to every name server of `links`; fires when all have answered or failed,
    never fails. `take` is given each answer of success."""
    told = [link.tell(RemotingCommand.request(code, header, body), timeout, take) for link in links]
    return DeferredList(told).addCallback(lambda _: None)


class RoleRegistration:
    """Keeps the broker registered with `links` until `end` is called. `masters` are told what name
    servers say of the broker's master."""

    def __init__(
        self,
        host: Host,
        addresses: Addresses,
        tables: Tables,
        role: RoleHolder,
        links: Links,
        masters: Listeners[Master],
        permission: Callable[[], int],
    ) -> None:
        """`permission`: what clients may do with this broker now, whatever its topics allow."""
        self._config = host.config
        self._in_thread = host.in_thread
        self._in_slices = host.in_slices
        self._addresses = addresses
        self._topics = tables.topics
        self._mappings = tables.mappings
        self._role = role
        self._links = links
        self._masters = masters
        self._permission = permission
        self._scope = Scope()
        self.end = self._scope.end
        #: What is registered is encoded one after the other, and so leaves in order.
        self._encoding = Serial()
        #: Topics that changed while that goes on, and those that wait until they are registered.
        self._changed: dict[str, TopicConfig] = {}
        self._changed_waiting = Waiters[None]()
        self._sent_version: DataVersion | None = None
        #: The ordered topics as they were told last, and the version of the topics then.
        self._ordered: tuple[bytes, DataVersion | None] = (b"", None)
        self._told_of_split = False

    def register(self, *, force: bool) -> Deferred[None]:
        """Registers everything; unless forced, only where a name server knows another version.
        Fires when all name servers have answered or failed; never fails."""
        if force:
            return self._send_all(self._links)

        def send(outdated: bool) -> Deferred[None] | None:
            return self._send_all(self._links) if outdated and not self._scope.is_over else None

        return self._any_outdated().addCallback(send)

    def register_changed(self, changed: Mapping[str, TopicConfig]) -> Deferred[Any]:
        """Registers topics that changed, together with those that change until they are on their
        way; fires when all name servers have answered or failed, never fails."""
        if self._config.enable_single_topic_register and not self._mappings.shown(changed):
            return DeferredList([self._send_topic(topic) for topic in changed.values()])
        self._changed.update(changed)
        registered = self._changed_waiting.wait()
        if len(self._changed_waiting) == 1:
            self._encoding.run(self._send_changed)
        return registered

    def retry(self, missing: Links) -> Deferred[None]:
        """Registers everything with name servers that lack this broker; fires when all of them have
        answered or failed, never fails."""
        return self._send_all(missing) if missing else succeed(None)

    def tell_again(self, link: NameServerLink) -> None:
        """Registers everything, in a new version, with a name server that is back: it would pass
        over a version that it knows, even if it missed what led there. The others have nothing to
        learn from it."""
        self._topics.touch()
        self._send_all([link])

    def _send_changed(self) -> Deferred[None]:
        """Sends one registration of all that changed while the one before was made; fires once it
        is on its way."""
        changed, self._changed = self._changed, {}
        waiting, self._changed_waiting = self._changed_waiting, Waiters[None]()

        def registered(result: object) -> None:
            if isinstance(result, Failure):
                log.failure(
                    "registering {n} topics with name servers failed",
                    failure=result,
                    n=len(changed),
                )
            self._in_slices(waiting.fire_in_steps(None))

        if self._topics.data_version == self._sent_version:
            # What was kept with others has their version, which would be passed over now.
            self._topics.touch()
        sent: Deferred[None] = Deferred()
        self._send_parts(changed, self._links, sent).addBoth(registered)
        return sent

    def _send_all(self, links: Links) -> Deferred[None]:
        """Registers all topics with some name servers; fires when these have answered or failed."""
        registered: Deferred[None] = Deferred()

        def send() -> Deferred[None]:
            sent: Deferred[None] = Deferred()
            self._send_parts(self._topics.all(), links, sent).chainDeferred(registered)
            return sent

        self._encoding.run(send)
        return registered

    @inlineCallbacks
    def _send_parts(
        self, topics: Mapping[str, TopicConfig], links: Links, sent: Deferred[None]
    ) -> Generator[Deferred[Any], Any, None]:
        """Sends the topics, in parts where there are many, or enableSplitRegistration wants them;
        `sent` fires once all are on their way."""
        size = MAX_TOPICS
        if self._config.enable_split_registration:
            size = min(size, self._config.split_registration_size)
        names = list(topics)
        self._tell_of_split(len(names), size)
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
                if self._scope.is_over:
                    return
                answered.append(self._send_body(body, crc, links))
        finally:
            sent.callback(None)
        yield DeferredList(answered)

    def _tell_of_split(self, topics: int, size: int) -> None:
        if topics > size and not (self._told_of_split or self._config.enable_split_registration):
            self._told_of_split = True
            log.info(
                "{n} topics are registered {size} at a time, since frames have a limit: name"
                " servers with deleteTopicWithBrokerRegistration=true would keep the last of them"
                " only, so switch that off there",
                n=topics,
                size=size,
            )

    def _encode(self, topics: Mapping[str, TopicConfig]) -> Deferred[tuple[bytes, int]]:
        """Returns the body of a registration, with the version of now, and its checksum: made in a
        thread."""
        table = self._topics.table(topics)
        table.topic_queue_mapping_info_map = self._mappings.shown(topics)
        self._sent_version = table.data_version
        compressed, permitted = self._config.compressed_register, self._permission()

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

    def _send_body(self, body: bytes, crc: int, links: Links) -> Deferred[None]:
        config = self._config
        header = RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self._addresses.broker,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=self._addresses.ha,
            broker_id=self._role.state.broker_id,
            heartbeat_timeout_millis=(
                config.broker_not_active_timeout_millis
                if config.enable_slave_acting_master
                else None
            ),
            enable_acting_master=config.enable_slave_acting_master,
            # Stock 5.3.3 says "not compressed" of a compressed body; name servers then refuse it.
            compressed=not body.startswith(b"{"),
            body_crc32=crc & 0x7FFFFFFF,
        )
        timeout = config.register_broker_timeout_mills / 1000
        code = RequestCode.REGISTER_BROKER
        free = [link for link in links if not link.is_held]
        for link in free:
            link.may_have_broker = True
        return tell_all(free, code, header, body, timeout, self._registered)

    def _send_topic(self, topic: TopicConfig) -> Deferred[None]:
        config = _as_permitted(topic, self._permission())
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
        header = RegisterTopicRequestHeader(topic=topic.topic_name)
        code = RequestCode.REGISTER_TOPIC_IN_NAMESRV
        free = [link for link in self._links if not link.is_held]
        return tell_all(free, code, header, encode_body(route), REGISTER_TOPIC_TIMEOUT)

    def _registered(self, link: NameServerLink, response: RemotingCommand) -> None:
        link.registered(self._config.broker_name)
        header = response.header(RegisterBrokerResponseHeader)
        self._masters.tell(Master(header.master_addr or "", header.ha_server_addr or ""))
        seen = (response.body, self._topics.data_version)
        if response.body and seen != self._ordered:
            self._ordered = seen
            self._topics.mark_ordered(decode_body(KVTable, response.body).table)

    def _any_outdated(self) -> Deferred[bool]:
        """Fires with whether some name server has another version of the topics, or cannot say."""
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

        def ask(link: NameServerLink) -> Deferred[bool]:
            command = RemotingCommand.request(RequestCode.QUERY_DATA_VERSION, header, body)
            return link.query(command, timeout).addCallback(is_outdated).addErrback(lambda _: True)

        asked = DeferredList([ask(link) for link in self._links if not link.is_held])
        return asked.addCallback(lambda results: any(outdated for _, outdated in results))


def _as_permitted(topic: TopicConfig, permitted: int) -> TopicConfig:
    """Returns the topic as clients may use it: a broker without permission takes its topics'
    away."""
    if permissions.is_readable(permitted) and permissions.is_writable(permitted):
        return topic
    return msgspec.structs.replace(topic, perm=topic.perm & permitted)
