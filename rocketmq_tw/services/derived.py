"""The values of keys that are given none, and what they follow from: for `-p`.

The rules are those of the rooms that go by them; here stands for which keys there are some.
"""

from __future__ import annotations

from rocketmq_tw.broker.cluster.addresses import announced_host, host_name, named_config
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.container import BrokerContainerConfig
from rocketmq_tw.config.load import Derived, Loaded
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.net.address import host_address
from rocketmq_tw.raft.core.membership import is_member_id
from rocketmq_tw.store.paths import StorePaths

_NAME, _ADDRESS = "this machine's name", "this machine's address"


def of_broker(loaded: Loaded) -> dict[str, Derived]:
    """Returns the keys of a broker."""
    config, store, net = (
        loaded[BrokerConfig],
        loaded[MessageStoreConfig],
        loaded[NettyServerConfig],
    )
    named, paths = named_config(config, net.bind_address), StorePaths(store)
    found = {}
    if not config.broker_name:
        found["brokerName"] = Derived(named.broker_name, _NAME)
    if not config.broker_ip1:
        found["brokerIP1"] = _announced(net, named.broker_ip1)
    if not config.broker_ip2:
        found["brokerIP2"] = Derived(named.broker_ip2, "brokerIP1")
    if not store.ha_listen_port and net.listen_port:
        found["haListenPort"] = Derived(str(net.listen_port + 1), "listenPort")
    root = "storePathRootDir"
    if not store.store_path_commit_log:
        found["storePathCommitLog"] = Derived(paths.commit_log, root)
    if not store.store_path_broker_identity:
        found["storePathBrokerIdentity"] = Derived(paths.broker_identity, root)
    if not store.store_path_epoch_file:
        found["storePathEpochFile"] = Derived(paths.epochs, root)
    is_member = store.enable_dledger_commit_log and is_member_id(store.dledger_self_id)
    if is_member and not store.store_path_dledger_commit_log:
        value = Derived(paths.dledger_data, f"{root} and dLegerSelfId")
        found["storePathDLedgerCommitLog"] = value
    return found


def of_container(loaded: Loaded) -> dict[str, Derived]:
    """Returns the keys of a container."""
    if loaded[BrokerContainerConfig].broker_container_ip:
        return {}
    net = loaded[NettyServerConfig]
    return {"brokerContainerIP": _announced(net, announced_host(net.bind_address))}


def of_proxy(loaded: Loaded) -> dict[str, Derived]:
    """Returns the keys of a proxy."""
    config = loaded[ProxyConfig]
    found = {}
    if not config.proxy_name:
        found["proxyName"] = Derived(host_name(), _NAME)
    if not config.local_serve_addr:
        found["localServeAddr"] = Derived(host_address(), _ADDRESS)
    if not config.heartbeat_syncer_topic_cluster_name:
        value = Derived(config.rocket_mq_cluster_name, "rocketMQClusterName")
        found["heartbeatSyncerTopicClusterName"] = value
    return found


def _announced(net: NettyServerConfig, host: str) -> Derived:
    return Derived(host, "bindAddress" if host == net.bind_address else _ADDRESS)
