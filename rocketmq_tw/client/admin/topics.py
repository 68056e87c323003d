"""Topics of a broker."""

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.client.admin.requests import ServerRequests
from rocketmq_tw.message.names import AUTO_CREATE_TOPIC
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.queues import TopicStatsTable
from rocketmq_tw.wire.bodies.topics import (
    CreateTopicListBody,
    GroupList,
    TopicConfig,
    TopicConfigAndQueueMapping,
    TopicConfigTable,
    TopicList,
)
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.topics import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)


class TopicAdmin(ServerRequests):
    """Makes, changes, deletes and looks at topics of one broker."""

    def update_topic(
        self, broker: str, config: TopicConfig, *, attributes: str | None = None
    ) -> Deferred[None]:
        """Creates or changes a topic on one broker.

        `attributes` are changes, `+name=value` and `-name` with commas between them; None sets
        `config.attributes`.
        """
        if attributes is None:
            attributes = ",".join(
                f"+{name}={value}" for name, value in (config.attributes or {}).items()
            )
        header = _creation(config, attributes=attributes or None)
        return self._tell(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    def system_topics(self, broker: str) -> Deferred[TopicList]:
        """Fires with the topics that every broker has by itself."""
        return self._body(broker, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, TopicList)

    def static_topic(self, broker: str, topic: str) -> Deferred[TopicConfigAndQueueMapping]:
        """Fires with a topic with the logic queues that the broker has of it, where it is a static
        one."""
        header = GetTopicConfigRequestHeader(topic=topic, lo=True)
        return self._body(broker, RequestCode.GET_TOPIC_CONFIG, TopicConfigAndQueueMapping, header)

    def update_static_topic(
        self, broker: str, config: TopicConfigAndQueueMapping, *, force: bool = False
    ) -> Deferred[None]:
        """Creates or changes a static topic and its logic queues on one broker; with `force` the
        broker takes also what contradicts what it has."""
        header = _creation(config, force=force)
        body = encode_body(config.mapping_detail)
        return self._tell(broker, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header, body)

    def delete_topic(self, broker: str, topic: str) -> Deferred[None]:
        """Deletes a topic with its messages from one broker."""
        header = DeleteTopicRequestHeader(topic=topic)
        return self._tell(broker, RequestCode.DELETE_TOPIC_IN_BROKER, header)

    def topic_stats(self, broker: str, topic: str) -> Deferred[TopicStatsTable]:
        """Offsets of each queue and when it last changed."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        return self._body(broker, RequestCode.GET_TOPIC_STATS_INFO, TopicStatsTable, header)

    def groups_of_topic(self, broker: str, topic: str) -> Deferred[GroupList]:
        """Fires with the groups that consume a topic, as far as the broker knows them."""
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        return self._body(broker, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList, header)

    def update_topics(self, broker: str, topics: Sequence[TopicConfig]) -> Deferred[None]:
        """Creates or changes several topics on one broker, all or none."""
        body = encode_body(CreateTopicListBody(topic_config_list=list(topics)))
        return self._tell(broker, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)

    def topics(self, broker: str) -> Deferred[TopicConfigTable]:
        """Fires with all topics that one broker has, with their settings."""
        return self._whole(broker, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigTable)


def _creation(config: TopicConfig, **fields: Any) -> CreateTopicRequestHeader:
    """Returns the header that creates or changes a topic; `fields` are what `config` says nothing
    of."""
    return CreateTopicRequestHeader(
        topic=config.topic_name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        **fields,
    )
