"""MessageStoreConfig: the keys that have an effect here, with stock 5.3.3's defaults."""

from msgspec import field

from rocketmq_tw.config.base import Config

_MAX_GAP = 256 << 20


class MessageStoreConfig(Config):
    """Where the store is, how it flushes, what it reads at once and how long it keeps."""

    # places; an empty commit-log path is `commitlog` below the root
    store_path_root_dir: str = "${user.home}/store"
    store_path_commit_log: str = ""

    # file sizes in bytes, index capacity in entries
    mapped_file_size_commit_log: int = 1 << 30
    mapped_file_size_consume_queue: int = 6_000_000
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    message_index_enable: bool = True

    # what a message may be
    max_message_size: int = 4 << 20
    enabled_append_prop_crc: bool = field(default=False, name="enabledAppendPropCRC")

    # flush; milliseconds
    flush_disk_type: str = "ASYNC_FLUSH"
    flush_interval_commit_log: int = 500
    flush_consume_queue_thorough_interval: int = 60_000
    sync_flush_timeout: int = 5_000

    # recovery
    check_crc_on_recover: bool = field(default=True, name="checkCRCOnRecover")
    check_crc_on_read: bool = field(default=True, name="checkCRCOnRead")

    # what one read of a queue may take; bytes and messages
    max_filter_message_size: int = 16_000
    max_transfer_bytes_on_message_in_memory: int = 262_144
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 65_536
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    travel_cq_file_num_when_get_message: int = 1
    max_msgs_num_batch: int = 64
    default_query_max_num: int = 32

    # retention: hours, hour of day, percent of the disk, milliseconds
    file_reserved_time: int = 72
    delete_when: str = "04"
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: int = 85
    disk_space_warning_level_ratio: int = 90
    clean_file_forcibly_enable: bool = True
    delete_file_batch_max: int = 10
    clean_resource_interval: int = 10_000

    # role and delay
    broker_role: str = "ASYNC_MASTER"
    offset_check_in_slave: bool = False
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    flush_delay_offset_interval: int = 10_000

    # replication; milliseconds, bytes. Empty haMasterAddress: what the name servers say.
    #: 0: the one above the broker's, as stock's start makes it.
    ha_listen_port: int = 0
    ha_master_address: str = ""
    ha_transfer_batch_size: int = 32_768
    ha_send_heartbeat_interval: int = 5_000
    ha_housekeeping_interval: int = 20_000
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: int = 100 << 20
    #: How far a slave may be behind and count: 5.x's name for it, and 4.9's.
    ha_max_gap_not_in_sync: int = _MAX_GAP
    ha_slave_fallbehind_max: int = _MAX_GAP
    slave_timeout: int = 3_000
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    enable_auto_in_sync_replicas: bool = False

    @property
    def is_slave(self) -> bool:
        return self.broker_role == "SLAVE"

    @property
    def memory_ratio(self) -> int:
        """Percent of the machine's memory in which the log's end is taken to be; as in stock a
        slave, which reads for others, leaves more to them."""
        return max(self.access_message_in_memory_max_ratio - (10 if self.is_slave else 0), 0)

    @property
    def max_gap(self) -> int:
        """The one of the two keys that was set."""
        if self.ha_slave_fallbehind_max != _MAX_GAP:
            return self.ha_slave_fallbehind_max
        return self.ha_max_gap_not_in_sync
