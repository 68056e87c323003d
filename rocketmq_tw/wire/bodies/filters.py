"""What groups filter by, as `consumerFilter.json` has it."""

from msgspec import field

from rocketmq_tw.wire.bodies.base import Body


class BloomFilterData(Body):
    """The bits of one group's expression, out of `bit_num`."""

    bit_num: int = 0
    bit_pos: list[int] = field(default_factory=list)


class ConsumerFilterData(Body):
    """What a group asks of a topic. `born_time` and `dead_time` are milliseconds: since when it
    asks so, and since when nobody of the group is there; 0 while somebody is. `client_version` is
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
