"""Stock's NamesrvConfig, as far as it has an effect here; defaults are stock 5.3.3's."""

from rocketmq_tw.config.base import Config


class NamesrvConfig(Config):
    """What a name server keeps and tells. Times in ms unless the key says seconds."""

    #: Beneath the home directory where the file does not say.
    kv_config_path: str = "${user.home}/namesrv/kvConfig.json"
    #: Where changes over the wire are kept: the file given with -c.
    config_store_path: str = "${user.home}/namesrv/namesrv.properties"
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    scan_not_active_broker_interval: int = 5_000
    support_acting_master: bool = False
    delete_topic_with_broker_registration: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    #: Keys that may not be changed over the wire, beside those that never may.
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
