"""Consumer groups of a broker."""

from twisted.internet.defer import Deferred

from rocketmq_tw.client.admin.requests import ServerRequests
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupTable
from rocketmq_tw.wire.bodies.offsets import ConsumeStats
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.groups import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsRequestHeader,
)


class GroupAdmin(ServerRequests):
    """Makes, changes, deletes and looks at consumer groups of one broker."""

    def update_group(self, broker: str, config: SubscriptionGroupConfig) -> Deferred[None]:
        """Creates or changes a consumer group on one broker."""
        return self._tell(
            broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(config)
        )

    def groups(self, broker: str) -> Deferred[SubscriptionGroupTable]:
        """All groups that one broker knows, with their settings."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return self._body(broker, code, SubscriptionGroupTable)

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
        """How far the group is in each queue of the broker."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        return self._body(broker, RequestCode.GET_CONSUME_STATS, ConsumeStats, header)
