"""Consumer groups of a broker, and their members."""

from collections.abc import Sequence

from twisted.internet.defer import Deferred

from rocketmq_tw.client.admin.requests import ServerRequests
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
    ProducerTable,
)
from rocketmq_tw.wire.bodies.groups import (
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupTable,
)
from rocketmq_tw.wire.bodies.queues import (
    ConsumerStatusBody,
    ConsumeStats,
    MessageQueue,
    ResetOffsetBody,
    SetMessageRequestModeRequestBody,
)
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.clients import (
    ConsumeMessageDirectlyResultRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from rocketmq_tw.wire.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)


class GroupAdmin(ServerRequests):
    """Makes, changes, deletes and looks at consumer groups of one broker."""

    def update_group(self, broker: str, config: SubscriptionGroupConfig) -> Deferred[None]:
        """Creates or changes a consumer group on one broker."""
        return self._tell(
            broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(config)
        )

    def update_groups(
        self, broker: str, configs: Sequence[SubscriptionGroupConfig]
    ) -> Deferred[None]:
        """Creates or changes several consumer groups on one broker, all or none."""
        body = encode_body(SubscriptionGroupList(group_config_list=list(configs)))
        return self._tell(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body)

    def set_request_mode(
        self, broker: str, topic: str, group: str, mode: str, *, shared_queues: int = 0
    ) -> Deferred[None]:
        """Sets how a group reads a topic, PULL or POP; with POP each queue is shared by so many
        more members."""
        body = SetMessageRequestModeRequestBody(
            topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=shared_queues
        )
        return self._tell(broker, RequestCode.SET_MESSAGE_REQUEST_MODE, None, encode_body(body))

    def groups(self, broker: str) -> Deferred[SubscriptionGroupTable]:
        """Fires with all groups that one broker knows, with their settings."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return self._whole(broker, code, SubscriptionGroupTable)

    def delete_group(
        self, broker: str, group: str, *, clean_offset: bool = False
    ) -> Deferred[None]:
        """Deletes a group from one broker, with `clean_offset` its offsets too."""
        header = DeleteSubscriptionGroupRequestHeader(
            group_name=group, clean_offset=clean_offset, remove_offset=clean_offset
        )
        return self._tell(broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    def consume_stats(
        self, broker: str, group: str, topic: str | None = None
    ) -> Deferred[ConsumeStats]:
        """Fires with how far the group is in each queue of the broker."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        return self._body(broker, RequestCode.GET_CONSUME_STATS, ConsumeStats, header)

    def reset_offsets(
        self,
        broker: str,
        group: str,
        topic: str,
        timestamp: int,
        *,
        force: bool = True,
        queue_id: int | None = None,
        offset: int | None = None,
    ) -> Deferred[dict[MessageQueue, int]]:
        """Lets a group go on at what was stored at `timestamp` in ms, negative: at the queue's
        end; or in one queue, at an offset. Not `force`: only where that is behind. Fires with the
        new offsets; fails with CONSUMER_NOT_ONLINE where the broker leaves it to the consumers."""
        header = ResetOffsetRequestHeader(
            topic=topic,
            group=group,
            timestamp=timestamp,
            is_force=force,
            queue_id=-1 if queue_id is None else queue_id,
            offset=offset,
        )
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        reset = self._body(broker, code, ResetOffsetBody, header)
        return reset.addCallback(lambda body: body.offset_table)

    def clone_offsets(
        self, broker: str, source: str, target: str, topic: str, *, offline: bool = False
    ) -> Deferred[None]:
        """Gives the group `target` the offsets of `source` in a topic; `offline`: also where no
        member of `source` subscribes to it any more."""
        header = CloneGroupOffsetRequestHeader(
            src_group=source, dest_group=target, topic=topic, offline=offline
        )
        return self._tell(broker, RequestCode.CLONE_GROUP_OFFSET, header)

    def search_offset(
        self, broker: str, topic: str, queue_id: int, timestamp: int
    ) -> Deferred[int]:
        """Fires with the offset of the first message of a queue that was stored at `timestamp` in
        ms or later; of a static topic it is a physical queue."""
        header = SearchOffsetRequestHeader(
            topic=topic, queue_id=queue_id, timestamp=timestamp, lo=False
        )
        found = self._header(
            broker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, SearchOffsetResponseHeader
        )
        return found.addCallback(lambda answer: answer.offset)

    def commit_offset(
        self, broker: str, group: str, topic: str, queue_id: int, offset: int
    ) -> Deferred[None]:
        """Sets how far a group is in one queue, of a static topic a physical one."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset, lo=False
        )
        return self._tell(broker, RequestCode.UPDATE_CONSUMER_OFFSET, header)


class MemberAdmin(ServerRequests):
    """The members of consumer groups, as a broker knows them."""

    def consumer_connections(self, broker: str, group: str) -> Deferred[ConsumerConnection]:
        """Fires with the connected members of a group and what they subscribe to."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        return self._body(
            broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerConnection, header
        )

    def producer_connections(self, broker: str, group: str) -> Deferred[ProducerConnection]:
        """Fires with the connected producers of a group; fails with `BrokerError` where there is
        none."""
        header = GetProducerConnectionListRequestHeader(producer_group=group)
        return self._body(
            broker, RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerConnection, header
        )

    def producers(self, broker: str) -> Deferred[ProducerTable]:
        """Fires with all connected producers of a broker, by group."""
        return self._body(broker, RequestCode.GET_ALL_PRODUCER_INFO, ProducerTable)

    def member_offsets(
        self, broker: str, group: str, topic: str, client_id: str | None = None
    ) -> Deferred[dict[str, dict[MessageQueue, int]]]:
        """Fires with the offsets that the members of a group have in mind, or one of them, by
        client id."""
        header = GetConsumerStatusRequestHeader(topic=topic, group=group, client_addr=client_id)
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        told = self._body(broker, code, ConsumerStatusBody, header)
        return told.addCallback(lambda body: body.consumer_table)

    def consumer_running_info(
        self, broker: str, group: str, client_id: str, *, jstack: bool = False
    ) -> Deferred[ConsumerRunningInfo]:
        """Fires with what one member says of itself; with `jstack` also its threads."""
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=jstack
        )
        return self._body(
            broker, RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfo, header
        )

    def consume_directly(
        self, broker: str, group: str, client_id: str, topic: str, message_id: str
    ) -> Deferred[ConsumeMessageDirectlyResult]:
        """Has one member consume the message with an offset message id, which is in the broker's
        log, once more."""
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group, client_id=client_id, topic=topic, msg_id=message_id
        )
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        return self._body(broker, code, ConsumeMessageDirectlyResult, header)
