"""The samples of `etc/dledger`: read without a notice, and members of one group."""

from __future__ import annotations

from pathlib import Path

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.load import load
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.properties import read_properties
from rocketmq_tw.config.schema import stock_keys
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.raft.core.membership import parse_peers

FILES = sorted((Path(__file__).parents[3] / "etc" / "dledger").glob("*.conf"))
TYPES = (BrokerConfig, MessageStoreConfig, NettyServerConfig)


def test_three_members_of_one_group() -> None:
    known = set().union(*stock_keys().values())
    stores, ports, ids, groups = set(), set(), [], set()
    for path in FILES:
        settings = read_properties(path.read_text(), str(path))
        loaded = load(TYPES, settings, "/home/nobody")
        assert not loaded.notices
        assert {setting.key for setting in settings} <= known
        store = loaded[MessageStoreConfig]
        stores.add(store.store_path_root_dir)
        ports.add(loaded[NettyServerConfig].listen_port)
        ids.append(store.dledger_self_id)
        groups.add((loaded[BrokerConfig].broker_name, store.dledger_group, store.dledger_peers))
    assert len(stores) == len(ports) == 3
    ((_, _, peers),) = groups
    assert ids == list(parse_peers(peers))
