"""Stock's ControllerConfig, as far as it has an effect here; defaults are stock 5.3.3's."""

from typing import Annotated

from rocketmq_tw.config.base import (
    AdminLive,
    Config,
    Format,
    Live,
    LocalPath,
    NetworkList,
    NonNegative,
    Positive,
    Range,
)
from rocketmq_tw.config.values import INT, LONG, choice
from rocketmq_tw.structs import field

_Type = Annotated[str, Format(choice("DLedger"))]


class ControllerConfig(Config, frozen=True):
    """The group of controllers, and how they look after brokers. Times in ms."""

    #: Where changes over the wire are kept: the file given with -c.
    config_store_path: LocalPath = "${user.home}/controller/controller.properties"
    #: The only one of stock's two Raft kinds that is supported.
    controller_type: _Type = "DLedger"

    # the Raft group
    controller_dledger_group: str = field(default="", name="controllerDLegerGroup")
    #: `id-host:port`, several with `;` between them: the ports of all requests.
    controller_dledger_peers: str = field(default="", name="controllerDLegerPeers")
    controller_dledger_self_id: str = field(default="", name="controllerDLegerSelfId")
    #: Ours: from where controllers are heard, beside their addresses in `controllerDLegerPeers`.
    member_addresses: NetworkList = ""
    #: Empty: DLedgerController in the home directory.
    controller_store_path: LocalPath = ""
    #: All controllers of a group have files of one size.
    mapped_file_size: Annotated[int, Range(4096, INT[1])] = 1 << 30

    # brokers and their masters
    scan_not_active_broker_interval: Annotated[int, Range(10, LONG[1])] = 5_000
    scan_inactive_master_interval: Annotated[int, Range(10, LONG[1])] = 5_000
    elect_master_max_retry_count: Live[Positive] = 3
    enable_elect_unclean_master: AdminLive[bool] = False
    notify_broker_role_changed: AdminLive[bool] = True
    #: Stock lists the key under the first name and reads it from files under the second.
    is_process_read_event: Live[bool] = False
    process_read_event: Live[bool] = False

    #: Keys that may not be changed over the wire, beside those that never may.
    config_black_list: str = "configBlackList;configStorePath"

    # Ours: entries between two snapshots of the state, in place of the log up to there. 0: none,
    # as in stock, which can not take one.
    controller_snapshot_interval: NonNegative = 0

    @property
    def reads_write(self) -> bool:
        """Whether a read is an entry of the log of its own."""
        return self.is_process_read_event or self.process_read_event
