"""MessageStoreConfig: the keys that have an effect here, with stock 5.3.3's defaults."""

from typing import Annotated

from rocketmq_tw.config.base import (
    AddressList,
    AdminLive,
    Config,
    Format,
    Live,
    LocalPath,
    NetworkList,
    NonNegative,
    Percent,
    Port,
    Positive,
    PositiveLong,
    Range,
)
from rocketmq_tw.config.values import DELAY_LEVELS, INT, choice, delay_levels, hours_of_day, path
from rocketmq_tw.structs import field

#: Stock's slave reads frames through a buffer of 4 MiB, with 12 bytes of header.
_MAX_HA_BATCH = 4 * 1024 * 1024 - 12
#: A century, so that no sum of milliseconds leaves Java's long.
_MAX_HOURS = 100 * 366 * 24
_MAX_GAP = 256 << 20

_Role = Annotated[str, Format(choice("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"))]


class MessageStoreConfig(Config, frozen=True):
    """Where the store is, how it flushes, what it reads at once and how long it keeps."""

    # places; an empty commit-log path is `commitlog` below the root
    store_path_root_dir: Annotated[LocalPath, Format(path)] = "${user.home}/store"
    store_path_commit_log: LocalPath = ""
    #: Empty: `brokerIdentity` below the root.
    store_path_broker_identity: LocalPath = ""
    #: Empty: `epochFileCheckpoint` below the root.
    store_path_epoch_file: LocalPath = ""

    # file sizes in bytes, index capacity in entries: an index file has 4 bytes a slot and 20 an
    # entry, and Java maps 2 GiB of a file at most
    mapped_file_size_commit_log: Annotated[int, Range(4096, INT[1])] = 1 << 30
    mapped_file_size_consume_queue: Annotated[int, Range(20, INT[1])] = 6_000_000
    mapped_file_size_consume_queue_ext: Annotated[int, Range(4096, INT[1])] = 48 << 20
    max_hash_slot_num: Annotated[int, Range(1, 100_000_000)] = 5_000_000
    max_index_num: Annotated[int, Range(2, 80_000_000)] = 20_000_000
    message_index_enable: bool = True

    # what a message may be
    max_message_size: Positive = 4 << 20
    enabled_append_prop_crc: bool = field(default=False, name="enabledAppendPropCRC")

    # whether queues have extensions, with what pulls by expressions ask first
    enable_consume_queue_ext: bool = False

    # messages in further queues (INNER_MULTI_DISPATCH), light ones (%LMQ%) without topics
    enable_multi_dispatch: bool = False
    enable_lmq: bool = False
    max_lmq_consume_queue_num: Positive = 20_000

    # flush; milliseconds
    flush_disk_type: Annotated[str, Format(choice("ASYNC_FLUSH", "SYNC_FLUSH"))] = "ASYNC_FLUSH"
    flush_interval_commit_log: Positive = 500
    flush_consume_queue_thorough_interval: NonNegative = 60_000
    sync_flush_timeout: Positive = 5_000

    # recovery
    check_crc_on_recover: bool = field(default=True, name="checkCRCOnRecover")
    check_crc_on_read: bool = field(default=True, name="checkCRCOnRead")

    # what one read of a queue may take; bytes and messages
    max_filter_message_size: NonNegative = 16_000
    max_transfer_bytes_on_message_in_memory: Live[Positive] = 262_144
    max_transfer_count_on_message_in_memory: Live[Positive] = 32
    max_transfer_bytes_on_message_in_disk: Live[Positive] = 65_536
    max_transfer_count_on_message_in_disk: Live[Positive] = 8
    access_message_in_memory_max_ratio: Percent = 40
    travel_cq_file_num_when_get_message: Positive = 1
    max_msgs_num_batch: Positive = 64
    default_query_max_num: Positive = 32

    # retention: hours, hour of day, percent of the disk, milliseconds
    file_reserved_time: AdminLive[Annotated[int, Range(1, _MAX_HOURS)]] = 72
    delete_when: AdminLive[Annotated[str, Format(hours_of_day)]] = "04"
    disk_max_used_space_ratio: AdminLive[Annotated[int, Range(10, 95)]] = 75
    disk_space_clean_forcibly_ratio: AdminLive[Percent] = 85
    disk_space_warning_level_ratio: AdminLive[Percent] = 90
    clean_file_forcibly_enable: AdminLive[bool] = True
    delete_file_batch_max: Positive = 10
    clean_resource_interval: Positive = 10_000

    # role and delay
    broker_role: _Role = "ASYNC_MASTER"
    total_replicas: AdminLive[Positive] = 1
    offset_check_in_slave: bool = False
    message_delay_level: Annotated[str, Format(delay_levels)] = DELAY_LEVELS
    flush_delay_offset_interval: PositiveLong = 10_000

    # messages for a time of their own; milliseconds, bytes
    timer_wheel_enable: bool = True
    timer_precision_ms: Positive = 1_000
    timer_roll_window_slot: Positive = 2 * 24 * 3600
    timer_max_delay_sec: AdminLive[Positive] = 3 * 24 * 3600
    timer_flush_interval_ms: Positive = 1_000
    timer_congest_num_each_slot: AdminLive[Positive] = INT[1]
    timer_stop_enqueue: AdminLive[bool] = False
    timer_stop_dequeue: AdminLive[bool] = False
    mapped_file_size_timer_log: Annotated[int, Range(4096, INT[1])] = 100 << 20

    # replication; milliseconds, bytes. Empty haMasterAddress: what the name servers say.
    #: 0: the one above the broker's, as stock's start makes it.
    ha_listen_port: Port = 0
    ha_master_address: AddressList = ""
    #: Ours: from where slaves may connect. Their connections count, wherever they are registered.
    ha_addresses: NetworkList = ""
    #: Ours: from where members of the DLedger group are heard, beside their addresses.
    member_addresses: NetworkList = ""
    ha_transfer_batch_size: Annotated[int, Range(1, _MAX_HA_BATCH)] = 32_768
    ha_send_heartbeat_interval: Positive = 5_000
    ha_housekeeping_interval: Positive = 20_000
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: PositiveLong = 100 << 20
    #: How far a slave may be behind and count: 5.x's name for it, and 4.9's.
    ha_max_gap_not_in_sync: AdminLive[NonNegative] = _MAX_GAP
    ha_slave_fallbehind_max: AdminLive[NonNegative] = _MAX_GAP
    slave_timeout: AdminLive[Positive] = 3_000
    in_sync_replicas: AdminLive[Positive] = 1
    min_in_sync_replicas: AdminLive[Positive] = 1
    enable_auto_in_sync_replicas: AdminLive[bool] = False

    # replication in controller mode; milliseconds
    all_ack_in_sync_state_set: AdminLive[bool] = False
    ha_max_time_slave_not_catchup: AdminLive[PositiveLong] = 15_000
    sync_from_last_file: bool = False
    async_learner: bool = False

    # a commit log in a DLedger group
    enable_dledger_commit_log: bool = field(default=False, name="enableDLegerCommitLog")
    dledger_group: str = field(default="", name="dLegerGroup")
    #: Ids and addresses of all members: `n0-127.0.0.1:40911;n1-127.0.0.1:40912`.
    dledger_peers: str = field(default="", name="dLegerPeers")
    dledger_self_id: str = field(default="", name="dLegerSelfId")
    #: Members that the leadership is handed to where they can take it, with `;` between.
    preferred_leader_id: str = ""
    #: Empty: `dledger-ID/data` below the root.
    store_path_dledger_commit_log: LocalPath = field(default="", name="storePathDLedgerCommitLog")

    @property
    def timer_slot_ms(self) -> int:
        """The slot width of the timer wheel in ms: the largest precision of stock's wheel that is
        not above the configured one."""
        return max((ms for ms in (200, 500, 1000) if ms <= self.timer_precision_ms), default=100)

    @property
    def max_gap(self) -> int:
        """Returns how many bytes a slave may lag: `haSlaveFallbehindMax` where it is set, otherwise
        `haMaxGapNotInSync`."""
        if self.ha_slave_fallbehind_max != _MAX_GAP:
            return self.ha_slave_fallbehind_max
        return self.ha_max_gap_not_in_sync
