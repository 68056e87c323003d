"""Topics of a broker."""

from twisted.internet.defer import Deferred

from rocketmq_tw.client.admin.requests import ServerRequests
from rocketmq_tw.message.names import AUTO_CREATE_TOPIC
from rocketmq_tw.wire.bodies.offsets import TopicStatsTable
from rocketmq_tw.wire.bodies.topics import GroupList, TopicConfig
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.topics import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)


class TopicAdmin(ServerRequests):
    """Makes, changes, deletes and looks at topics of one broker."""

    def update_topic(
        self, broker: str, config: TopicConfig, *, attributes: str | None = None
    ) -> Deferred[None]:
        """Creates or changes a topic on one broker.

        `attributes` are changes, `+name=value` and `-name` with commas between them; without
        them those of `config` are set.
        """
        if attributes is None:
            attributes = ",".join(
                f"+{name}={value}" for name, value in (config.attributes or {}).items()
            )
        header = CreateTopicRequestHeader(
            topic=config.topic_name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=attributes or None,
        )
        return self._tell(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    def delete_topic(self, broker: str, topic: str) -> Deferred[None]:
        """Deletes a topic with its messages from one broker."""
        header = DeleteTopicRequestHeader(topic=topic)
        return self._tell(broker, RequestCode.DELETE_TOPIC_IN_BROKER, header)

    def topic_stats(self, broker: str, topic: str) -> Deferred[TopicStatsTable]:
        """Offsets of each queue and when it last changed."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        return self._body(broker, RequestCode.GET_TOPIC_STATS_INFO, TopicStatsTable, header)

    def groups_of_topic(self, broker: str, topic: str) -> Deferred[GroupList]:
        """The groups that consume a topic, as far as the broker knows them."""
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        return self._body(broker, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList, header)
