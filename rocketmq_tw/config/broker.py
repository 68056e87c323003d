"""Stock's BrokerConfig and BrokerIdentity; where it listens stands in `net.NettyServerConfig`.

Only the keys that have an effect here; defaults are stock 5.3.3's. `broker_ip1`, `broker_ip2` and
`broker_name` are empty where the file does not say: the broker fills in its host's.
"""

from typing import Annotated

from rocketmq_tw.config.base import (
    AddressList,
    AdminLive,
    Config,
    Format,
    Live,
    NonNegative,
    NonNegativeLong,
    OptionalHost,
    Percent,
    Positive,
    PositiveLong,
    Range,
)
from rocketmq_tw.config.values import INT, LONG, choice, or_nothing, plain_name
from rocketmq_tw.structs import field

_Queues = Annotated[int, Range(1, 65536)]
_BrokerId = Annotated[int, Range(-1, LONG[1])]
_RequestMode = Annotated[str, Format(choice("PULL", "POP"))]


class BrokerConfig(Config, frozen=True):
    """What a broker is called, where it listens and what it lets clients do."""

    # identity
    broker_name: Annotated[str, Format(or_nothing(plain_name))] = ""
    broker_cluster_name: Annotated[str, Format(plain_name)] = "DefaultCluster"
    # -1 stands in files for controller mode, where no id of a file counts
    broker_id: _BrokerId = 0
    # A container says so of its brokers: consumers are not sent to slaves of such a group.
    is_in_broker_container: bool = False

    # the group's controller gives the role, whatever brokerId and brokerRole say; milliseconds
    enable_controller_mode: bool = False
    check_sync_state_set_period: PositiveLong = 5_000

    # Slave Acting Master: a slave stands in for a master that is gone; milliseconds
    enable_slave_acting_master: bool = False
    enable_remote_escape: AdminLive[bool] = False
    skip_pre_online: bool = False
    compatible_with_old_name_srv: AdminLive[bool] = True
    lock_in_strict_mode: AdminLive[bool] = False
    broker_not_active_timeout_millis: AdminLive[PositiveLong] = 10_000
    sync_broker_member_group_period: Positive = 1_000

    # addresses
    namesrv_addr: AddressList = ""
    broker_ip1: OptionalHost = field(default="", name="brokerIP1")
    broker_ip2: OptionalHost = field(default="", name="brokerIP2")

    # topics and groups
    broker_permission: AdminLive[Annotated[int, Range(0, 7)]] = 6
    default_topic_queue_nums: _Queues = 8
    auto_create_topic_enable: AdminLive[bool] = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    revive_queue_num: _Queues = 8
    auto_create_subscription_group: AdminLive[bool] = True
    enable_create_sys_group: bool = True
    validate_system_topic_when_update_topic: AdminLive[bool] = True
    clear_retry_topic_when_delete_topic: AdminLive[bool] = True
    enable_mixed_message_type: Live[bool] = False

    # registration with the name servers; milliseconds
    register_broker_timeout_mills: AdminLive[Positive] = 24_000
    register_name_server_period: Annotated[int, Range(1_000, INT[1])] = 30_000
    compressed_register: Live[bool] = False
    force_register: Live[bool] = True
    enable_single_topic_register: Live[bool] = False
    enable_split_registration: AdminLive[bool] = False
    split_registration_size: AdminLive[Positive] = 800

    # clients and consumer offsets
    notify_consumer_ids_changed_enable: Live[bool] = True
    reject_pull_consumer_enable: AdminLive[bool] = False
    channel_expired_timeout: AdminLive[PositiveLong] = 120_000
    flush_consumer_offset_interval: Positive = 5_000
    consumer_offset_update_version_step: Live[PositiveLong] = 500
    delay_offset_update_version_step: Live[PositiveLong] = 200
    use_server_side_reset_offset: Live[bool] = True

    # sending
    region_id: str = "DefaultRegion"
    trace_on: Live[bool] = True
    start_accept_send_request_time_stamp: AdminLive[NonNegativeLong] = 0
    reject_transaction_message: AdminLive[bool] = False
    store_reply_message_enable: AdminLive[bool] = True
    recall_message_enable: AdminLive[bool] = False
    allow_recall_when_broker_not_writeable: AdminLive[bool] = True

    # only topics that say their kind (message.type) take part in it; a key of stock's proxies
    enable_topic_message_type_check: AdminLive[bool] = False

    # SYSTEM_BUSY instead of a late answer; milliseconds
    broker_fast_failure_enable: AdminLive[bool] = True
    wait_time_mills_in_send_queue: AdminLive[PositiveLong] = 200
    wait_time_mills_in_pull_queue: AdminLive[PositiveLong] = 5_000
    wait_time_mills_in_lite_pull_queue: AdminLive[PositiveLong] = 5_000
    wait_time_mills_in_heartbeat_queue: AdminLive[PositiveLong] = 31_000
    wait_time_mills_in_transaction_queue: AdminLive[PositiveLong] = 3_000
    wait_time_mills_in_ack_queue: AdminLive[PositiveLong] = 3_000

    # transactions; milliseconds and bytes
    transaction_time_out: AdminLive[PositiveLong] = 6_000
    transaction_check_interval: AdminLive[PositiveLong] = 30_000
    transaction_check_max: AdminLive[Positive] = 15
    transaction_op_msg_max_size: Live[Annotated[int, Range(0, 1 << 20)]] = 4_096
    transaction_metric_flush_interval: PositiveLong = 3_000

    # pulling
    long_polling_enable: Live[bool] = True
    short_polling_time_mills: Live[PositiveLong] = 1_000
    lite_pull_message_enable: bool = True
    slave_read_enable: AdminLive[bool] = False

    # static topics: what is asked of other brokers; milliseconds
    forward_timeout: AdminLive[PositiveLong] = 3_000

    # controllers; milliseconds
    controller_addr: AddressList = ""
    fetch_controller_addr_by_dns_lookup: bool = False
    sync_controller_metadata_period: PositiveLong = 10_000
    sync_broker_metadata_period: PositiveLong = 5_000
    broker_heartbeat_interval: AdminLive[Positive] = 1_000
    send_heartbeat_timeout_millis: AdminLive[Positive] = 1_000
    controller_heart_beat_timeout_mills: AdminLive[PositiveLong] = 10_000
    broker_election_priority: Live[NonNegative] = INT[1]

    # popping; milliseconds
    enable_retry_topic_v2: AdminLive[bool] = field(default=False, name="enableRetryTopicV2")
    retrieve_message_from_pop_retry_topic_v1: AdminLive[bool] = field(
        default=True, name="retrieveMessageFromPopRetryTopicV1"
    )
    pop_from_retry_probability: AdminLive[Percent] = 20
    pop_response_return_actual_retry_topic: Live[bool] = False
    init_pop_offset_by_check_msg_in_mem: Live[bool] = True
    pop_polling_size: AdminLive[Positive] = 1024
    max_pop_polling_size: AdminLive[PositiveLong] = 100_000
    enable_pop_message_threshold: AdminLive[bool] = False
    pop_inflight_message_threshold: AdminLive[PositiveLong] = 10_000
    #: Ours, named as the key of stock's proxies: retention leaves what is hidden.
    max_invisible_time_mills: AdminLive[PositiveLong] = 7 * 24 * 3_600_000
    revive_interval: PositiveLong = 1_000
    default_message_request_mode: Live[_RequestMode] = "PULL"
    default_pop_share_queue_num: Live[Annotated[int, Range(-1, INT[1])]] = -1
    server_load_balancer_enable: AdminLive[bool] = True
    load_balance_poll_name_server_interval: Live[PositiveLong] = 30_000

    # filtering by properties; milliseconds, percent
    enable_property_filter: AdminLive[bool] = False
    filter_support_retry: Live[bool] = False
    enable_calc_filter_bit_map: Live[bool] = False
    filter_data_clean_time_span: AdminLive[PositiveLong] = 86_400_000
    expect_consumer_num_use_filter: Annotated[int, Range(1, 10_000)] = 32
    max_error_rate_of_bloom_filter: Annotated[int, Range(1, 99)] = 20

    # what the admin protocol must not change or tell
    config_black_list: str = "configBlackList;brokerConfigPath"
