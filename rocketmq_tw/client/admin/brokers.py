"""A broker itself: its state, its configuration, what it cleans."""

from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.client.admin.requests import ServerRequests
from rocketmq_tw.client.errors import check_success
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.controller import EpochEntryCache
from rocketmq_tw.wire.bodies.queues import ConsumeStatsList
from rocketmq_tw.wire.bodies.stats import BrokerStatsData, HARuntimeInfo, KVTable
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import WireError
from rocketmq_tw.wire.headers.broker import (
    ResetMasterFlushOffsetHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rocketmq_tw.wire.headers.clients import GetConsumeStatsInBrokerHeader

#: The field of request 2004.
_READ_AHEAD_FIELD = "READ_AHEAD_MODE"


class BrokerAdmin(ServerRequests):
    """Looks at a broker and changes its configuration."""

    def runtime_info(self, broker: str) -> Deferred[KVTable]:
        """Fires with names and values as stock's brokerStatus shows them."""
        return self._body(broker, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)

    def broker_config(self, broker: str) -> Deferred[dict[str, str]]:
        """Keys and values of the configuration, as .properties files have them."""
        return self._properties(broker, RequestCode.GET_BROKER_CONFIG)

    def update_broker_config(self, broker: str, changes: dict[str, str]) -> Deferred[str]:
        """Gives keys new values, all or none; fires with what the broker has to say of it, as that
        no start will know of them."""
        return self._change_properties(broker, RequestCode.UPDATE_BROKER_CONFIG, changes)

    def ha_status(self, broker: str) -> Deferred[HARuntimeInfo]:
        """Fires with how far replication is: of a master each slave, of a slave itself."""
        return self._body(broker, RequestCode.GET_BROKER_HA_STATUS, HARuntimeInfo)

    def epochs(self, broker: str) -> Deferred[EpochEntryCache]:
        """Fires with the reigns of masters in the log of a broker in controller mode."""
        return self._body(broker, RequestCode.GET_BROKER_EPOCH_CACHE, EpochEntryCache)

    def counted(self, broker: str, name: str, key: str) -> Deferred[BrokerStatsData]:
        """Fires with what the broker counted under a statistic's name (TOPIC_PUT_NUMS, ...) and
        key; fails with `BrokerError` where it counted nothing."""
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        return self._body(broker, RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsData, header)

    def progress_of_all(
        self, broker: str, *, ordered: bool, timeout: float
    ) -> Deferred[ConsumeStatsList]:
        """Fires with how far each group is, with `ordered` in ordered topics only; within `timeout`
        seconds."""
        header = GetConsumeStatsInBrokerHeader(is_order=ordered)
        request = RemotingCommand.request(RequestCode.GET_BROKER_CONSUME_STATS, header)

        def read(address: str, response: RemotingCommand) -> ConsumeStatsList:
            return decode_body(ConsumeStatsList, check_success(address, response).body)

        return self._read(broker, request, read, timeout)

    def clean_queues(self, broker: str) -> Deferred[None]:
        """Removes units of queues whose messages are gone."""
        return self._tell(broker, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    def clean_topics(self, broker: str) -> Deferred[None]:
        """Removes queues of topics that the broker does not have any more."""
        return self._tell(broker, RequestCode.CLEAN_UNUSED_TOPIC)

    def clean_log(self, broker: str) -> Deferred[None]:
        """Deletes files of the log that are old enough to go, now."""
        return self._tell(broker, RequestCode.DELETE_EXPIRED_COMMITLOG)

    def reset_master_flush_offset(self, broker: str, offset: int) -> Deferred[None]:
        """Tells a slave how far its master has flushed."""
        header = ResetMasterFlushOffsetHeader(master_flush_offset=offset)
        return self._tell(broker, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)

    def return_pops(self, broker: str) -> Deferred[None]:
        """Has the broker bring the records of pops back from its key-value store."""
        return self._tell(broker, RequestCode.POP_ROLLBACK)

    def cold_reads(self, broker: str) -> Deferred[dict[str, Any]]:
        """Fires with the limits of cold reads: `configTable` by group, `runtimeTable` what groups
        read, and the limits of all groups."""
        request = RemotingCommand.request(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
        return self._read(broker, request, _json_object)

    def limit_cold_reads(self, broker: str, group: str, limit: int) -> Deferred[str]:
        """Sets how many bytes of cold data a group may read in a period; fires as
        `update_broker_config` does."""
        code = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
        return self._change_properties(broker, code, {group: str(limit)})

    def unlimit_cold_reads(self, broker: str, group: str) -> Deferred[None]:
        """Removes the limit of a group."""
        code = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
        return self._tell(broker, code, None, group.encode())

    def set_read_ahead(self, broker: str, mode: int) -> Deferred[str]:
        """Sets how the log is read ahead, 0: as the system does, 1: not; fires with what the broker
        says of it."""
        request = RemotingCommand.request(RequestCode.SET_COMMITLOG_READ_MODE)
        request.ext_fields[_READ_AHEAD_FIELD] = str(mode)
        return self._read(
            broker,
            request,
            lambda address, response: check_success(address, response).remark or "",
        )


def _json_object(address: str, response: RemotingCommand) -> dict[str, Any]:
    body = check_success(address, response).body
    try:
        return msgspec.json.decode(body or b"{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise WireError(f"{address}: the answer is no JSON: {error}") from error
