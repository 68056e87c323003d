"""The samples of `etc/container`: read without a notice, and brokers that live side by side."""

from __future__ import annotations

from pathlib import Path

from rocketmq_tw.config.container import BrokerContainerConfig
from rocketmq_tw.config.load import load
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.properties import read_properties
from rocketmq_tw.container.broker_files import BrokerFiles

PROJECT = Path(__file__).parents[3]
SAMPLES = PROJECT / "etc" / "container"


def test_a_container_and_two_brokers() -> None:
    path = SAMPLES / "broker-container.conf"
    settings = read_properties(path.read_text(), str(path))
    loaded = load((BrokerContainerConfig, NettyServerConfig), settings, "/home/nobody")
    assert not loaded.notices
    config = loaded[BrokerContainerConfig]
    for named in config.broker_config_paths.split(":"):
        assert (PROJECT / named).exists()
    files = BrokerFiles(config.namesrv_addr, "127.0.0.1", "/home/nobody")
    setups = [files.read(str(path)) for path in sorted(SAMPLES.glob("broker-[ab].conf"))]
    assert len({setup.identity for setup in setups}) == 2
    assert len({setup.store_config.store_path_root_dir for setup in setups}) == 2
    ports = [setup.listen_port + distance for setup in setups for distance in (-2, 0, 1)]
    assert len({*ports, 10811, 10809}) == 8
