"""The registration of this broker with all name servers while it has one role.

In full every registerNameServerPeriod (request 103), and at once with what changed when a topic
does. Request and body: docs/formats/bodies.md, "Registration (103)".
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Mapping
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.cluster.name_server_links import Links, Master, NameServerLink, tell_all
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire import permissions
from rocketmq_tw.wire.bodies.base import DataVersion, decode_body, encode_body
from rocketmq_tw.wire.bodies.registration import RegisterBrokerBody, encode_registration
from rocketmq_tw.wire.bodies.route import QueueData, TopicRouteData
from rocketmq_tw.wire.bodies.stats import KVTable
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
)

#: Seconds; as stock waits.
REGISTER_TOPIC_TIMEOUT = 3.0
#: Topics of one registration: stock's frames have 16 MiB, and a topic takes 600 bytes at most.
MAX_TOPICS_AT_ONCE = 20_000

log = Logger()


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

        def failed(failure: Failure) -> None:
            log.failure(
                "registering {n} topics with name servers failed", failure=failure, n=len(changed)
            )

        if self._topics.data_version == self._sent_version:
            # What was kept with others has their version, which would be passed over now.
            self._topics.touch()
        # One that is not reachable gets all once it is back; one that has another process would
        # know the broker by what changed alone.
        others = [link for link in self._links if not link.has_all and link.is_reachable]
        links = [link for link in self._links if link.has_all]
        sent: Deferred[None] = Deferred()
        told = self._send_parts(changed, links, sent).addErrback(failed)
        DeferredList([told, self.retry(others)]).addCallback(
            lambda _: self._in_slices(waiting.fire_in_steps(None))
        )
        return sent

    def _send_all(self, links: Links) -> Deferred[None]:
        """Registers all topics with some name servers; fires when these have answered or failed."""
        registered: Deferred[None] = Deferred()

        def send() -> Deferred[None]:
            sent: Deferred[None] = Deferred()
            parts = self._send_parts(self._topics.all(), links, sent, are_all=True)
            parts.chainDeferred(registered)
            return sent

        self._encoding.run(send)
        return registered

    @inlineCallbacks
    def _send_parts(
        self,
        topics: Mapping[str, TopicConfig],
        links: Links,
        sent: Deferred[None],
        *,
        are_all: bool = False,
    ) -> Generator[Deferred[Any], Any, None]:
        """Sends the topics, in parts where there are many, or enableSplitRegistration wants them;
        `sent` fires once all are on their way. `are_all`: they are all that there are."""
        losses = {link.address: link.losses for link in links}
        size = MAX_TOPICS_AT_ONCE
        if self._config.enable_split_registration:
            size = min(size, self._config.split_registration_size)
        names = list(topics)
        self._tell_of_split(len(names), size)
        answered = []
        try:
            for start in range(0, max(1, len(names)), size) if links else ():
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
        for link in links:
            if are_all and link.has_broker and link.losses == losses[link.address]:
                link.has_all = True

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
