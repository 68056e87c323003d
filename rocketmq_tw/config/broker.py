"""Stock's BrokerConfig and BrokerIdentity; where it listens stands in `net.NettyServerConfig`.

Only the keys that have an effect here; defaults are stock 5.3.3's. `broker_ip1`, `broker_ip2` and
`broker_name` are empty where the file does not say: the broker fills in its host's.
"""

from msgspec import field

from rocketmq_tw.config.base import Config


class BrokerConfig(Config):
    """What a broker is called, where it listens and what it lets clients do."""

    # identity
    broker_name: str = ""
    broker_cluster_name: str = "DefaultCluster"
    broker_id: int = 0

    # addresses
    namesrv_addr: str = ""
    broker_ip1: str = field(default="", name="brokerIP1")
    broker_ip2: str = field(default="", name="brokerIP2")

    # topics and groups
    broker_permission: int = 6
    default_topic_queue_nums: int = 8
    auto_create_topic_enable: bool = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    revive_queue_num: int = 8
    auto_create_subscription_group: bool = True
    enable_create_sys_group: bool = True
    validate_system_topic_when_update_topic: bool = True
    clear_retry_topic_when_delete_topic: bool = True
    enable_mixed_message_type: bool = False

    # registration with the name servers; milliseconds
    register_broker_timeout_mills: int = 24_000
    register_name_server_period: int = 30_000
    compressed_register: bool = False
    force_register: bool = True
    enable_single_topic_register: bool = False
    enable_split_registration: bool = False
    split_registration_size: int = 800
    enable_slave_acting_master: bool = False
    broker_heartbeat_interval: int = 1_000
    broker_not_active_timeout_millis: int = 10_000
    send_heartbeat_timeout_millis: int = 1_000

    # clients and consumer offsets
    notify_consumer_ids_changed_enable: bool = True
    reject_pull_consumer_enable: bool = False
    channel_expired_timeout: int = 120_000
    flush_consumer_offset_interval: int = 5_000
    consumer_offset_update_version_step: int = 500
    use_server_side_reset_offset: bool = True

    # sending
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    start_accept_send_request_time_stamp: int = 0
    reject_transaction_message: bool = False

    # pulling
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1_000
    lite_pull_message_enable: bool = True
    slave_read_enable: bool = False

    # what the admin protocol must not change or tell
    config_black_list: str = "configBlackList;brokerConfigPath"

    @property
    def is_slave(self) -> bool:
        """Masters are 0 (see `broker.replicas.check_role`)."""
        return self.broker_id > 0
