"""Messages that producers send and consumers give back, as a part of the broker."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Mapping

from rocketmq_tw.broker.assembly.handlers import merge_handlers, refusing
from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.broker.clients.part import Clients
from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.sending.beside import GivenBackBeside
from rocketmq_tw.broker.sending.checks import SendChecks
from rocketmq_tw.broker.sending.message_sizes import MessageSizes
from rocketmq_tw.broker.sending.plain import PlainSends
from rocketmq_tw.broker.sending.replies import ReplyRequests
from rocketmq_tw.broker.sending.retries import Retries
from rocketmq_tw.broker.sending.send import SendRequests
from rocketmq_tw.broker.sending.send_back import SendBackRequests
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.ids import UniqueIds, pack_ip
from rocketmq_tw.message.names import RETRY_PREFIX
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.net.cluster_peers import ClusterPeers
from rocketmq_tw.net.interfaces import FrameHandler, Handler
from rocketmq_tw.wire.codes import RequestCode, ResponseCode

#: Requests that store a message; stock 5.3.3's slaves refuse them with SYSTEM_BUSY.
STORING = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)


class Sending(Part):
    """Takes messages as a master and refuses them in any other role; what is given back to a slave
    in a container goes to a master beside it."""

    def __init__(
        self,
        host: Host,
        addresses: Addresses,
        writing: Writing,
        tables: Tables,
        clients: Clients,
        stats: Stats,
        brokers: BrokerClient,
        role: RoleHolder,
    ) -> None:
        retries = Retries(
            tables.topics, tables.groups, clients.locks.holds_any, stats.traffic.buried
        )
        writing.redirects.by_topic(RETRY_PREFIX, retries.redirect)
        self._host = host
        self._role = role
        self._addresses = addresses
        self._unique_ids: UniqueIds | None = None
        self.checks = SendChecks(
            host.config,
            host.store_config,
            tables.topics,
            host.now_ms,
            ClusterPeers(host.net_config.cluster_addresses, host.net_config.admin_addresses),
        )
        self._sizes = MessageSizes(tables.topics.is_system) if host.is_monitored else None
        if self._sizes is not None:
            tables.topics.removed.add(self._sizes.forget)
        send = SendRequests(
            host.config,
            self.checks,
            writing,
            tables,
            addresses,
            self._next_unique_id,
            self._sizes,
            stats,
        )
        self._plain_sends = PlainSends(host.config, send, self.checks, writing, tables, stats)
        #: Takes the messages of this process for as long as the broker is a master that serves.
        self.plain: PlainSends | None = None
        send_back = SendBackRequests(
            host.config, writing, tables, retries, addresses, stats.traffic.given_back
        )
        replies = ReplyRequests(host, writing, tables, clients.registry, addresses, self.checks)
        self._beside = GivenBackBeside(host, writing.store, tables.groups, brokers)
        self._handlers = merge_handlers([send.handlers(), send_back.handlers(), replies.handlers()])

    def start(self) -> None:
        self._unique_ids = UniqueIds(
            pack_ip(self._addresses.ip), os.getpid(), random.getrandbits(32), self._host.now_ms
        )

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        if role is Role.MASTER:
            return self._handlers
        remark = f"this broker is {role.words} and stores nothing: ask the master"
        refusals = refusing(STORING, ResponseCode.SYSTEM_BUSY, remark)
        if not role.copies_log:
            return refusals
        return refusals | self._beside.handlers(refusals[RequestCode.CONSUMER_SEND_MSG_BACK])

    def ready(self, state: RoleState) -> None:
        if state.role is Role.MASTER:
            self.plain = self._plain_sends
            self._role.scope.on_end(self._take_no_more)

    def _take_no_more(self) -> None:
        self.plain = None

    def frame_handlers(self, role: Role) -> Mapping[int, FrameHandler]:
        if role is not Role.MASTER:
            return {}
        return {RequestCode.SEND_MESSAGE_V2: self._plain_sends.take}

    def metrics(self) -> Iterable[Metric]:
        return () if self._sizes is None else self._sizes.metrics()

    def _next_unique_id(self) -> str:
        assert self._unique_ids is not None, "the part is not started"
        return self._unique_ids.next()
