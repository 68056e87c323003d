"""Tells the brokers of a group who is the master now (1008)."""

from collections.abc import Iterable

from twisted.logger import Logger

from rocketmq_tw.controller.core.decisions import Decision
from rocketmq_tw.controller.core.election import BrokerLife
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.net.notices import LatestNotices
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.controller import ElectMasterResponseBody, SyncStateSetBody
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.controller import (
    ElectMasterResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
)

#: Notifications that wait for their connection: groups have a few brokers, but may register any
#: number.
MAX_ON_THEIR_WAY = 256


class RoleNotifier:
    """Notifies the brokers that are alive, oneway: one that misses it asks from time to time."""

    log = Logger()

    def __init__(self, client: IRemotingClient, life: BrokerLife) -> None:
        self._life = life
        self._notices = LatestNotices(
            client, MAX_ON_THEIR_WAY, "which broker of its group is the master"
        )

    def elected(self, decision: Decision) -> None:
        """Tells of an election that has a new master; nothing of any other decision."""
        header, body = decision.header, decision.body
        if not isinstance(header, ElectMasterResponseHeader):
            return
        if not isinstance(body, ElectMasterResponseBody) or body.broker_member_group is None:
            return
        group = body.broker_member_group
        cluster, name = group.cluster or "", group.broker_name or ""
        addresses = [
            address
            for broker_id, address in group.broker_addrs.items()
            if address and self._life.standing(cluster, name, broker_id) is not None
        ]
        self.log.info(
            "{name}: {master} is the master in epoch {epoch}, told to {addresses}",
            name=name,
            master=header.master_broker_id,
            epoch=header.master_epoch,
            addresses=addresses,
        )
        self._tell(addresses, header, body.sync_state_set)

    def _tell(
        self, addresses: Iterable[str], header: ElectMasterResponseHeader, members: list[int]
    ) -> None:
        news = NotifyBrokerRoleChangedRequestHeader(
            master_address=header.master_address,
            master_epoch=header.master_epoch,
            sync_state_set_epoch=header.sync_state_set_epoch,
            master_broker_id=header.master_broker_id,
        )
        members_body = encode_body(
            SyncStateSetBody(
                sync_state_set=members, sync_state_set_epoch=header.sync_state_set_epoch or 0
            )
        )
        for address in addresses:
            code = RequestCode.NOTIFY_BROKER_ROLE_CHANGED
            self._notices.tell(
                address, RemotingCommand.request(code, news, members_body, oneway=True)
            )
