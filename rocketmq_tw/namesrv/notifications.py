"""Tells the brokers of a group that another one has the smallest id now (905).

A slave with the smallest id stands in for its master ("Slave Acting Master"); it also asks from
time to time.
"""

from __future__ import annotations

from twisted.logger import Logger

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.namesrv.brokers import MinIdChange, smallest_id
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.net.notices import LatestNotices
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader

#: Notices that wait for their connection.
_MAX_ON_THEIR_WAY = 256

log = Logger()


class MinIdNotifier:
    """Notifies groups with enableActingMaster, where the name server supports that or
    `notifyMinBrokerIdChanged` wants it."""

    def __init__(self, config: NamesrvConfig, client: IRemotingClient) -> None:
        self._config = config
        self._notices = LatestNotices(
            client, _MAX_ON_THEIR_WAY, "which broker of its group has the smallest id"
        )

    def changed(self, change: MinIdChange) -> None:
        """Tells the group; not the broker that came, which learns it in other ways."""
        config = self._config
        if not (config.support_acting_master or config.notify_min_broker_id_changed):
            return
        smallest = smallest_id(change.addresses)
        assert smallest is not None, "a change names the broker that has it"
        told = dict(change.addresses)
        if change.offline_address is None and len(told) > 1:
            del told[smallest]
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=smallest,
            broker_name=change.broker_name,
            min_broker_addr=change.addresses[smallest],
            offline_broker_addr=change.offline_address,
            ha_broker_addr=change.ha_address,
        )
        log.info(
            "broker {name}: the smallest id is {id} now, told to {addresses}",
            name=change.broker_name,
            id=smallest,
            addresses=", ".join(told.values()),
        )
        for address in told.values():
            code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
            self._notices.tell(address, RemotingCommand.request(code, header, oneway=True))
