"""A proxy in a broker's process: `--enable-proxy`, and `-pc` for its own file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from twisted.logger import Logger
from twisted.python import usage

from rocketmq_tw.broker.role.state import configured_role
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.load import Loaded, load
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig, TlsConfig
from rocketmq_tw.config.properties import ConfigError, Setting
from rocketmq_tw.config.proxy import OWN_DEFAULTS, ProxyConfig
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.services.options import NamesrvAddressOptions, read_file

#: As with stock's local proxies, whose clients the broker knows; a file may name the topic.
LOCAL_DEFAULTS = {"heartbeatSyncerTopicName": ""}

_TYPES = (ProxyConfig, NettyServerConfig, NettyClientConfig, TlsConfig)


class LocalProxyOptions(NamesrvAddressOptions):
    """Options of a server with a broker, which may have a proxy in its process; `proxy` has the
    proxy's configuration then."""

    optFlags: ClassVar[list[list[Any]]] = [
        ["enable-proxy", None, "Serve clients of RocketMQ 5 too, by a proxy in this process."],
    ]
    optParameters: ClassVar[list[list[Any]]] = [
        ["proxy-config", None, None, "The proxy's own file, as stock's rmq-proxy.json; also -pc."],
    ]
    proxy: Loaded | None = None

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        if options is not None:
            # Letters by themselves are all that the parser knows.
            options = ["--proxy-config" if each == "-pc" else each for each in options]
        super().parseOptions(options)

    def check(self, loaded: Loaded) -> None:
        configured_role(loaded[BrokerConfig], loaded[MessageStoreConfig])

    def postOptions(self) -> None:
        super().postOptions()
        if not self["enable-proxy"]:
            if self["proxy-config"] is not None:
                raise usage.UsageError("-pc is a proxy's file: give --enable-proxy too")
            return
        home = self._environ.get("HOME", ".")
        try:
            self.proxy = load_local_proxy(self["proxy-config"], self.loaded, home)
        except ConfigError as error:
            raise SystemExit(str(error)) from error


def load_local_proxy(path: str | None, broker: Loaded, home: str) -> Loaded:
    """Returns the configuration of a proxy in a broker's process from the file at `path`; where it
    does not say to which address the ports belong, and how brokers are spoken to, it is as the
    broker has it. Raises `ConfigError`."""
    defaults = {**OWN_DEFAULTS, **LOCAL_DEFAULTS}
    settings = [Setting(key, value, "default") for key, value in defaults.items()]
    bind_address = broker[NettyServerConfig].bind_address
    settings.append(Setting("bindAddress", bind_address, "the broker's"))
    use_tls = "true" if broker[NettyClientConfig].use_tls else "false"
    settings.append(Setting("useTLS", use_tls, "the broker's"))
    if path is not None:
        settings += read_file(path)
    loaded = load(_TYPES, settings, home)
    for notice in loaded.notices:
        if notice.is_warning:
            Logger().warn("{text}", text=notice.text)
    return loaded
