"""What a name server and a broker in one process have beside their own keys."""

from rocketmq_tw.config.base import Config
from rocketmq_tw.config.constraints import Port


class StandaloneConfig(Config, frozen=True):
    """`listenPort` is the broker's there."""

    #: 0: a port of the kernel's choice.
    namesrv_listen_port: Port = 9876
