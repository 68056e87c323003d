"""Topics: their configuration, the tables of them, lists of names.

Format: docs/formats/bodies.md; the files: docs/formats/config-files.md.
"""

from rocketmq_tw.structs import field
from rocketmq_tw.wire.bodies.base import Body, ByQueue, DataVersion, by_queue

# Bits of the `topicSysFlag` of a topic.
TOPIC_UNIT = 1 << 0
TOPIC_UNIT_SUB = 1 << 1


class TopicConfig(Body):
    """One topic of a broker; `perm` is read 4, write 2, inherit 1. 4.9.7 has no `attributes`."""

    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] | None = field(default_factory=dict)


class LogicQueueMappingItem(Body):
    """One stretch of a static topic's logic queue on one broker."""

    gen: int = 0
    queue_id: int = 0
    bname: str | None = None
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1
    time_of_start: int = -1
    time_of_end: int = -1


class TopicQueueMappingInfo(Body):
    """Which logic queues of a static topic a broker leads: logic id to physical id."""

    topic: str | None = None
    scope: str | None = "__global__"
    total_queues: int = 0
    bname: str | None = None
    epoch: int = 0
    dirty: bool = False
    curr_id_map: ByQueue[int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.curr_id_map = by_queue(self.curr_id_map)


class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """How a broker hosts a static topic: for each logic queue the stretches of it, oldest first."""

    hosted_queues: ByQueue[list[LogicQueueMappingItem]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hosted_queues = by_queue(self.hosted_queues)


class TopicConfigAndQueueMapping(TopicConfig):
    """Answer to 351: a topic with how the broker hosts it where it is static and `lo` asks for it,
    as what is moved has for each broker."""

    mapping_detail: TopicQueueMappingDetail | None = None


class TopicRemappingDetailWrapper(Body):
    """The file that mqadmin writes in front of and behind a change of a static topic: broker name
    to what that broker has of it."""

    topic: str = ""
    type: str = ""
    epoch: int = 0
    broker_config_map: dict[str, TopicConfigAndQueueMapping] = field(default_factory=dict)
    broker_to_map_in: list[str] = field(default_factory=list)
    broker_to_map_out: list[str] = field(default_factory=list)


class TopicQueueMappingTable(Body):
    """`topicQueueMapping.json`: static topic to how the broker hosts it."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class TopicConfigTable(Body):
    """Answer to 21, and `topics.json`: topic name to configuration.

    The mapping fields are 5.x's; None, the form of 4.9.7, leaves them out. `log_place` is ours:
    the table has the topics of all messages in front of this place of the log.
    """

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] | None = None
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] | None = None
    log_place: int | None = None


class TopicList(Body):
    """Answer to 206, 224, 304, 305, 311-313."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None


class CreateTopicListBody(Body):
    """Request 18."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


class GroupList(Body):
    """Answer to 300: the groups that consume a topic."""

    group_list: list[str] = field(default_factory=list)
