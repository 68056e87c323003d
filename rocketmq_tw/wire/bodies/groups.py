"""Consumer groups: their configuration, and the expressions that they filter by.

Format: docs/formats/bodies.md; the files: docs/formats/config-files.md.
"""

from rocketmq_tw.structs import field
from rocketmq_tw.wire.bodies.base import Body, DataVersion


class ExponentialRetryPolicy(Body):
    """Delays in ms: `initial` times `multiplier` to the power of the retries, at most `max`."""

    initial: int = 5_000
    max: int = 7_200_000
    multiplier: int = 2


class CustomizedRetryPolicy(Body):
    """Delays in ms, one for each retry; the last one stands for all after it."""

    next: list[int] = field(default_factory=list)


class GroupRetryPolicy(Body):
    """`type` is EXPONENTIAL or CUSTOMIZED."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(Body):
    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: int = 0


class SubscriptionGroupConfig(Body):
    """One consumer group. The fields that 4.9.7 does not have may be None: they are left out."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool | None = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: GroupRetryPolicy | None = field(default_factory=GroupRetryPolicy)
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int | None = 0
    consume_timeout_minute: int | None = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] | None = field(default_factory=dict)


class SubscriptionGroupTable(Body):
    """Answer to 201, and `subscriptionGroup.json`: group name to configuration.

    `forbidden_table` is in 5.x's file only: group to topic to forbidden bits.
    """

    data_version: DataVersion = field(default_factory=DataVersion)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, int]] | None = None


class SubscriptionGroupList(Body):
    """Request 225."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


class GroupForbidden(Body):
    """Answer to 353."""

    topic: str | None = None
    group: str | None = None
    readable: bool | None = None


class BloomFilterData(Body):
    """The bits of one group's expression, out of `bit_num`."""

    bit_num: int = 0
    bit_pos: list[int] = field(default_factory=list)


class ConsumerFilterData(Body):
    """What a group asks of a topic. `born_time` and `dead_time` are milliseconds: since when it
    asks so, and since when no member of the group is connected; 0 while one is. `client_version` is
    the subscription's version."""

    bloom_filter_data: BloomFilterData | None = None
    born_time: int = 0
    client_version: int = 0
    consumer_group: str = ""
    dead: bool = False
    dead_time: int = 0
    expression: str | None = None
    expression_type: str | None = None
    topic: str = ""


class FilterDataOfTopic(Body):
    """By group."""

    group_filter_data: dict[str, ConsumerFilterData] = field(default_factory=dict)
    topic: str | None = None


class ConsumerFilterTable(Body):
    """`consumerFilter.json`: topic to its groups' expressions."""

    filter_data_by_topic: dict[str, FilterDataOfTopic] = field(default_factory=dict)
