"""Stock's NamesrvConfig, and what a name server and a broker in one process add to it.

Only the keys that have an effect here; defaults are stock 5.3.3's.
"""

from typing import Annotated

from rocketmq_tw.config.base import (
    AdminLive,
    Config,
    Format,
    Live,
    LocalPath,
    NonNegative,
    Port,
    PositiveLong,
    Range,
)
from rocketmq_tw.config.values import LONG, path


class NamesrvConfig(Config, frozen=True):
    """What a name server keeps and answers. Times in ms unless the key says seconds."""

    #: Beneath the home directory where the file does not say.
    kv_config_path: Annotated[LocalPath, Format(path)] = "${user.home}/namesrv/kvConfig.json"
    #: Where changes over the wire are kept: the file given with -c.
    config_store_path: LocalPath = "${user.home}/namesrv/namesrv.properties"
    order_message_enable: Live[bool] = False
    return_order_topic_config_to_broker: Live[bool] = True
    scan_not_active_broker_interval: Annotated[int, Range(10, LONG[1])] = 5_000
    support_acting_master: AdminLive[bool] = False
    notify_min_broker_id_changed: AdminLive[bool] = False
    delete_topic_with_broker_registration: AdminLive[bool] = False
    enable_all_topic_list: AdminLive[bool] = True
    enable_topic_list: AdminLive[bool] = True
    need_wait_for_service: AdminLive[bool] = False
    wait_seconds_for_service: AdminLive[NonNegative] = 45
    #: A controller in the same process, on the port that controllerDLegerPeers has for it.
    enable_controller_in_namesrv: bool = False
    #: Keys that may not be changed over the wire, beside those that never may.
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"

    # Ours: stock has no such limit.
    #: What the topics of all brokers may take in memory, roughly: 300 to 900 bytes each.
    max_topic_bytes: PositiveLong = 512 * 1024 * 1024
    #: Another address gets a living broker's name and id never, or with a warning only, as stock's.
    refuse_taken_broker_ids: bool = True


class StandaloneConfig(Config, frozen=True):
    """The name server of a standalone server, where `listenPort` is the broker's."""

    #: 0: a port of the kernel's choice.
    namesrv_listen_port: Port = 9876
