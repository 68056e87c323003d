"""docs/configuration.md lists the keys that can be changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from rocketmq_tw.config.base import Config
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.container import BrokerContainerConfig
from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig
from rocketmq_tw.config.schema import keys_of
from rocketmq_tw.config.store import MessageStoreConfig
from tests.support.jars import PROJECT

#: What `LiveConfig` is given, beside what has no live keys.
SERVERS = {
    "broker": (BrokerConfig, MessageStoreConfig),
    "container": (BrokerContainerConfig,),
    "name server": (NamesrvConfig,),
    "controller": (ControllerConfig,),
}
HEADING = "### Keys that can be changed\n"


def live_keys(types: Iterable[type[Config]], *, for_administrators: bool) -> list[str]:
    return sorted(
        name
        for config_type in types
        for name, key in keys_of(config_type).items()
        if key.is_live and key.is_for_administrators == for_administrators
    )


def listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


@pytest.mark.parametrize("server", SERVERS)
def test_the_page_lists_the_keys_that_can_be_changed(server: str) -> None:
    page = (PROJECT / "docs" / "configuration.md").read_text()
    _, _, rows = page.partition(HEADING)
    section = " ".join(rows.partition("\n#")[0].split())
    free, guarded = (
        listed(live_keys(SERVERS[server], for_administrators=guarded)) for guarded in (False, True)
    )
    wanted = f"**{server}** - everybody: {free} - administrators: {guarded}"
    assert f"{wanted} **" in f"{section} **"


def test_the_other_configurations_have_none() -> None:
    assert not any(
        key.is_live
        for config_type in (NettyServerConfig, NettyClientConfig)
        for key in keys_of(config_type).values()
    )
