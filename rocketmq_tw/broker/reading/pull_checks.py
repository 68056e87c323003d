"""May a group pull from a queue, and which of its messages does it want?"""

from __future__ import annotations

from rocketmq_tw.broker.clients.registry import ClientRegistry, ConsumerGroup
from rocketmq_tw.broker.filters.filters import MessageFilters
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.remarks import broker_unreadable, group_disabled, topic_unreadable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.store.interface import MessageFilter
from rocketmq_tw.wire.bodies.clients import SubscriptionData
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pull import PULL_SUBSCRIPTION, PullMessageRequestHeader
from rocketmq_tw.wire.permissions import is_readable

#: `forbiddenType` of a NO_PERMISSION answer: what forbids the pull.
BROKER_FORBIDDEN = 1
GROUP_FORBIDDEN = 2
TOPIC_FORBIDDEN = 3
BROADCASTING_FORBIDDEN = 4
SUBSCRIPTION_FORBIDDEN = 5

_SYSTEM_GROUP = "CID_RMQ_SYS_"


class PullForbidden(RequestError):
    """NO_PERMISSION; `forbidden_type` is the reason as stock's clients read it."""

    def __init__(self, forbidden_type: int, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.forbidden_type = forbidden_type


class PullChecks:
    """Refuses pulls with stock's codes: raises `RequestError`, of which `PullForbidden` is one."""

    def __init__(
        self, config: BrokerConfig, tables: Tables, clients: ClientRegistry, filters: MessageFilters
    ) -> None:
        self._config = config
        self._topics = tables.topics
        self._groups = tables.groups
        self._clients = clients
        self._filters = filters

    def authorise(
        self, code: int, header: PullMessageRequestHeader
    ) -> tuple[SubscriptionGroupConfig, TopicConfig]:
        """Returns the group and the topic of a pull with request code `code`. Raises
        `PullForbidden` or `RequestError` where broker, group or topic do not allow it or the queue
        does not exist."""
        config = self._config
        if not is_readable(config.broker_permission):
            raise PullForbidden(BROKER_FORBIDDEN, broker_unreadable(config))
        if code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            raise PullForbidden(
                BROKER_FORBIDDEN,
                f"the broker {config.broker_ip1} takes no lite pull consumers:"
                " litePullMessageEnable=false",
            )
        group = self._groups.known(header.consumer_group)
        if not group.consume_enable:
            raise PullForbidden(GROUP_FORBIDDEN, group_disabled(header.consumer_group))
        topic = self._topics.known(header.topic)
        if not is_readable(topic.perm):
            raise PullForbidden(TOPIC_FORBIDDEN, topic_unreadable(header.topic))
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{header.topic} has no queue {header.queue_id}:"
                f" it has {topic.read_queue_nums} to read from",
            )
        return group, topic

    def filter(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig, peer: IPeer
    ) -> MessageFilter:
        """Returns the filter of the pull's own expression, or of what its group subscribes to.
        Raises `BudgetSpent` where making it must wait."""
        if not header.sys_flag & PULL_SUBSCRIPTION:
            consumers, subscription = self._subscription(header, group)
            wanted = self._filters.of_subscription(consumers, subscription, header.sub_version)
        else:
            wanted = self._filters.of_expression(header.subscription, header.expression_type)
        if self._config.reject_pull_consumer_enable:
            self._check_pull_consumer(header.consumer_group, peer)
        return wanted

    def _subscription(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> tuple[ConsumerGroup, SubscriptionData]:
        """Returns the connected consumers of the group, and what they subscribe to of the topic."""
        consumers = self._clients.consumer_group(header.consumer_group)
        if consumers is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"no consumer of group {header.consumer_group} is known: send a heartbeat first",
            )
        if consumers.is_broadcasting and not group.consume_broadcast_enable:
            raise PullForbidden(
                BROADCASTING_FORBIDDEN,
                f"group {header.consumer_group} may not broadcast: set its consumeBroadcastEnable"
                " (rmqadmin updateSubGroup)",
            )
        if not self._groups.may_read(header.consumer_group, header.topic):
            raise PullForbidden(
                SUBSCRIPTION_FORBIDDEN,
                f"group {header.consumer_group} may not read the topic {header.topic}:"
                " an administrator has forbidden it",
            )
        subscription = consumers.subscriptions.get(header.topic)
        if subscription is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"group {header.consumer_group} does not subscribe to {header.topic}:"
                " all its consumers must have the same subscriptions",
            )
        if subscription.sub_version < header.sub_version:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the subscription of {header.consumer_group} is older than the pull's:"
                " send a heartbeat first",
            )
        return consumers, subscription

    def _check_pull_consumer(self, name: str, peer: IPeer) -> None:
        consumers = self._clients.consumer_group(name)
        if consumers is not None and consumers.consume_type != "CONSUME_ACTIVELY":
            return
        if (consumers is None or peer not in consumers.clients) and not name.startswith(
            _SYSTEM_GROUP
        ):
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the broker takes no pull consumers (rejectPullConsumerEnable); group {name}",
            )
