"""A proxy in a broker's process: `--enable-proxy`, and `-pc` for its own file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from twisted.python import usage

from rocketmq_tw.broker.cluster.addresses import named_config, resolve
from rocketmq_tw.broker.role.state import check_controllers_named, configured_role
from rocketmq_tw.broker.writing.group_log import group_settings
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.heartbeats import check_heartbeats
from rocketmq_tw.config.load import Derived, Loaded, Notice, load
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig, TlsConfig
from rocketmq_tw.config.properties import ConfigError, Setting
from rocketmq_tw.config.proxy import LOCAL, OWN_DEFAULTS, ProxyConfig
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.services.derived import of_proxy
from rocketmq_tw.services.options import NamesrvAddressOptions, read_file
from rocketmq_tw.services.ports import PortUse, check_ports, ports_of_broker, ports_of_proxy

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
        config, store_config = loaded[BrokerConfig], loaded[MessageStoreConfig]
        configured_role(config, store_config)
        check_controllers_named(config)
        check_heartbeats(config)
        if store_config.enable_dledger_commit_log:
            group_settings(config, store_config)

    def ports(self) -> list[PortUse]:
        net, store = self.loaded[NettyServerConfig], self.loaded[MessageStoreConfig]
        found = ports_of_broker(net.bind_address, net.listen_port, store)
        if self.proxy is not None:
            found += ports_of_proxy(self.proxy)
        return found + self.monitoring_port()

    def monitored(self) -> Sequence[str]:
        return ("broker", "proxy") if self["enable-proxy"] else ("broker",)

    def check_start(self) -> None:
        super().check_start()
        bound = self.loaded[NettyServerConfig].bind_address
        resolve(named_config(self.loaded[BrokerConfig], bound).broker_ip1)
        if self.proxy is not None:
            # Only here: the modules of gRPC take a fifth of a broker's start.
            from rocketmq_tw.services.proxy import check_proxy_tls

            check_proxy_tls(self.proxy)

    def load(self) -> Sequence[Notice]:
        notices = super().load()
        if self["print"] and (warning := check_heartbeats(self.loaded[BrokerConfig])):
            # A broker that starts says so itself.
            notices = [*notices, Notice(True, warning)]
        if not self["enable-proxy"]:
            if self["proxy-config"] is not None:
                raise usage.UsageError("-pc is a proxy's file: give --enable-proxy too")
            return notices
        home = self._environ.get("HOME", ".")
        strict = bool(self["strict"])
        self.proxy = _load_proxy(self["proxy-config"], self.loaded, home, strict=strict)
        check_ports(self.ports())
        return [*notices, *(notice for notice in self.proxy.notices if notice.is_warning)]

    def effective(self) -> str:
        """The proxy's configuration stands in comments: it is no part of the broker's file."""
        text = super().effective()
        if self.proxy is None:
            return text
        of_file = self.proxy.properties(self._derived_of(self.proxy))
        lines = "".join(f"# {line}\n" for line in of_file.splitlines())
        return f"{text}#\n# The proxy of --enable-proxy, as a file for -pc:\n{lines}"

    def _derived_of(self, proxy: Loaded) -> dict[str, Derived]:
        found = of_proxy(proxy)
        found["proxyMode"] = Derived(LOCAL, "--enable-proxy")
        if not proxy[ProxyConfig].namesrv_addr:
            value = Derived(self.loaded[BrokerConfig].namesrv_addr, "")
            addresses = self.derived().get("namesrvAddr", value).value
            found["namesrvAddr"] = Derived(addresses, "the broker's namesrvAddr")
        return found


def _load_proxy(path: str | None, broker: Loaded, home: str, *, strict: bool) -> Loaded:
    """Returns the configuration of a proxy in a broker's process from the file at `path`; where it
    does not say to which address the ports belong, and how brokers are spoken to, it is as the
    broker has it. Raises `ConfigError`."""
    defaults = {**OWN_DEFAULTS, **LOCAL_DEFAULTS}
    settings = [Setting(key, value, "default") for key, value in defaults.items()]
    use_tls = "true" if broker[NettyClientConfig].use_tls else "false"
    for key, value in (
        ("bindAddress", broker[NettyServerConfig].bind_address),
        ("useTLS", use_tls),
    ):
        settings.append(Setting(key, value, "the broker's", follows=f"the broker's {key}"))
    if path is not None:
        settings += read_file(path, strict=strict)
    loaded = load(_TYPES, settings, home)
    if loaded[ProxyConfig].share_ports:
        raise ConfigError(
            "sharePorts is for twistd rmq-proxy: a proxy in a broker's process has ports of its own"
        )
    return loaded
