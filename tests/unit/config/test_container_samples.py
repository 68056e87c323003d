"""The samples of `etc/container`: read without a notice, and brokers that live side by side."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rocketmq_tw.config.container import SEPARATE, BrokerContainerConfig
from rocketmq_tw.config.load import load
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.properties import read_properties
from rocketmq_tw.container.broker_files import BrokerFiles
from rocketmq_tw.container.interface import BrokerSetup

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


def _setups(name: str) -> list[BrokerSetup]:
    """The brokers of a container of etc/container/cores."""
    path = SAMPLES / "cores" / f"{name}.conf"
    settings = read_properties(path.read_text(), str(path))
    loaded = load((BrokerContainerConfig, NettyServerConfig), settings, "/home/nobody")
    assert not loaded.notices
    config = loaded[BrokerContainerConfig]
    assert config.broker_processes == SEPARATE
    files = BrokerFiles(config.namesrv_addr, "127.0.0.1", "/home/nobody")
    setups = [files.read(str(PROJECT / named)) for named in config.broker_config_paths.split(":")]
    ports = {setup.listen_port + distance for setup in setups for distance in (-2, 0, 1)}
    assert len(ports | {loaded[NettyServerConfig].listen_port}) == 3 * len(setups) + 1
    assert len({setup.store_config.store_path_root_dir for setup in setups}) == len(setups)
    return setups


@pytest.mark.parametrize("cores", [2, 4, 16])
def test_a_master_for_each_core(cores: int) -> None:
    setups = _setups(f"{cores}-cores")
    assert all(setup.is_master for setup in setups)
    assert len({setup.config.broker_name for setup in setups}) == cores


@pytest.mark.parametrize("cores", [2, 4, 16])
def test_two_machines_have_the_slaves_of_each_other(cores: int) -> None:
    masters, slaves = [], []
    for machine in (1, 2):
        setups = _setups(f"{cores}-cores-machine-{machine}")
        assert len(setups) == cores
        masters.append({each.config.broker_name for each in setups if each.is_master})
        slaves.append({each.config.broker_name for each in setups if not each.is_master})
    assert masters == slaves[::-1]
    assert len(masters[0]) == len(masters[1]) == cores // 2
    assert len(masters[0] | masters[1]) == cores


def test_no_sample_of_the_cores_is_left_over() -> None:
    named = {
        path
        for file in (SAMPLES / "cores").glob("*-cores*.conf")
        for path in re.findall(r"etc/container/cores/[^:\n]+", file.read_text().splitlines()[-1])
    }
    assert named == {
        f"etc/container/cores/{path.name}" for path in (SAMPLES / "cores").glob("broker-*.conf")
    }
