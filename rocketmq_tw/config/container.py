"""Stock's BrokerContainerConfig, as far as it has an effect here, and keys of ours."""

from typing import Annotated

from rocketmq_tw.config.base import (
    AddressList,
    AdminLive,
    Config,
    Format,
    LocalPath,
    OptionalHost,
    PositiveLong,
)
from rocketmq_tw.config.values import choice
from rocketmq_tw.structs import field

TOGETHER, SEPARATE = "together", "separate"


class BrokerContainerConfig(Config, frozen=True):
    """Which brokers a container has, and how they live in it. Times in ms."""

    #: The name servers of its brokers; empty: those that each broker's own file names.
    namesrv_addr: AddressList = ""
    #: Under which address tools reach the container; empty: the host's.
    broker_container_ip: OptionalHost = field(default="", name="brokerContainerIP")
    #: The files of the brokers that it starts with, several with `:` between them.
    broker_config_paths: LocalPath = ""

    #: Keys that may not be changed over the wire, beside those that never may.
    config_black_list: str = "configBlackList;brokerConfigPaths"

    # Ours: stock's brokers are threads of one process.
    #: together: in the container's process; separate: each in a process of its own.
    broker_processes: Annotated[str, Format(choice(SEPARATE, TOGETHER))] = SEPARATE
    #: A process that ended by itself is started again after a second, then after twice as long
    #: each time, up to this.
    max_broker_restart_pause_millis: AdminLive[PositiveLong] = 60_000
    #: How long a broker's process may take to stop before it is killed.
    broker_stop_timeout_millis: AdminLive[PositiveLong] = 60_000
