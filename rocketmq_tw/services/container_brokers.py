"""The files of the brokers that a container starts with, before any broker starts: for `-p`, and
how a file that is refused is told to who starts the container."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rocketmq_tw.broker.cluster.addresses import resolve
from rocketmq_tw.broker.role.state import check_controllers_named, configured_role
from rocketmq_tw.broker.writing.group_log import group_settings
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.container.broker_files import NO_FILE, BrokerFiles, FileRefused
from rocketmq_tw.container.interface import BrokerIdentity, BrokerSetup
from rocketmq_tw.services.ports import PortUse, check_ports, ports_of_broker
from rocketmq_tw.store.paths import StorePaths


def check_brokers(files: BrokerFiles, paths: Sequence[str], own: Sequence[PortUse]) -> None:
    """Raises `ConfigError` with the file's name for the first broker that would not start, as far
    as its file and those before it tell; the container has its `own` ports. Reads the files, and
    asks for host names."""
    known: dict[BrokerIdentity | str, str] = {}
    ports = list(own)
    for path in paths:
        try:
            setup = files.read(path)
            _check(setup)
        except (FileRefused, ConfigError) as error:
            raise ConfigError(file_refusal(path, error)) from error
        root = os.path.abspath(setup.store_config.store_path_root_dir)
        log = os.path.abspath(StorePaths(setup.store_config).commit_log)
        for what, key in (
            (f"the broker {setup.identity.canonical_name}", setup.identity),
            (f"storePathRootDir={root}", root),
            (f"storePathCommitLog={log}", log),
        ):
            if key in known:
                raise ConfigError(f"{path}: {what} is in {known[key]} already")
            known[key] = path
        ports += ports_of_broker(
            files.bind_address,
            setup.listen_port,
            setup.store_config,
            f" of {path}",
        )
        check_ports(ports)


def ports_at_start(files: BrokerFiles, paths: Sequence[str]) -> list[PortUse]:
    """Returns what these brokers listen on from their start; nothing of one whose file is refused,
    as its own start says. Reads the files."""
    ports: list[PortUse] = []
    for path in paths:
        try:
            ports += ports_of_hosted(files.bind_address, files.read(path))
        except FileRefused:
            continue
    return ports


def ports_of_hosted(host: str, setup: BrokerSetup) -> list[PortUse]:
    """Returns what a broker of a container listens on, at `host`, from its start."""
    of = f" of {setup.path}"
    return ports_of_broker(host, setup.listen_port, setup.store_config, of, at_start=True)


def file_refusal(path: str, error: BaseException) -> str:
    """Says why the broker of the file at `path` is refused: with the file, and with the value that
    answers to administrators leave out, since who starts the container may read it."""
    refused = error if isinstance(error, FileRefused) else error.__cause__
    if isinstance(refused, FileRefused) and isinstance(refused.__cause__, ConfigError):
        return str(refused.__cause__)
    text = str(error).removeprefix(NO_FILE)
    return text if path in text else f"{path}: {text}"


def _check(setup: BrokerSetup) -> None:
    configured_role(setup.config, setup.store_config)
    check_controllers_named(setup.config)
    if setup.store_config.enable_dledger_commit_log:
        group_settings(setup.config, setup.store_config)
    resolve(setup.config.broker_ip1)
