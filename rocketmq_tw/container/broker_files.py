"""The files that describe a container's brokers.

Administrators name them in requests: so only a small regular file that is a broker's configuration
is taken, and no text of it goes into an answer.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence

import attrs
from twisted.logger import Logger

from rocketmq_tw.broker.cluster.addresses import named_config
from rocketmq_tw.config.base import Config
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.load import Loaded, SettingRefused, load
from rocketmq_tw.config.log import LogConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig, TlsConfig
from rocketmq_tw.config.properties import MAX_FILE_BYTES, ConfigError, Setting, read_properties
from rocketmq_tw.config.schema import keys_of, stock_default
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.container.interface import BrokerIdentity, BrokerSetup
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.route import MASTER_ID

#: The configurations that a broker's file gives; all else of its server is the container's.
TYPES: Sequence[type[Config]] = (BrokerConfig, MessageStoreConfig, NettyServerConfig)
#: Those of the container, whose keys in a broker's file say nothing.
_OF_CONTAINER = (NettyServerConfig, NettyClientConfig, TlsConfig, LogConfig)
#: Where a file names no port: stock's for a broker in a container.
DEFAULT_PORT = 6888

#: What stock's remark begins with where a file cannot be used.
NO_FILE = "addBroker properties empty: "

#: Returns the text of the file at a path; blocks. Raises `OSError` or `FileRefused`.
ReadText = Callable[[str], str]

log = Logger()


class FileRefused(Exception):
    """A file that makes no broker; the text is the remark of the answer, and has none of the
    file's."""


def read_small_file(path: str) -> str:
    """Returns the text of a small regular file; never waits for a writer as a pipe would have it.
    Raises `FileRefused` or `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileRefused(_unreadable(path, "it is no regular file"))
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise FileRefused(_unreadable(path, f"it has more than {MAX_FILE_BYTES} bytes"))
    return data.decode("latin-1")


@attrs.frozen
class BrokerFiles:
    """Reads files of brokers for one container."""

    #: The container's name servers, which win over those of a broker's file.
    namesrv_addr: str
    #: Where the container listens.
    bind_address: str
    #: What `${user.home}` stands for.
    home: str
    read_text: ReadText = read_small_file
    #: Gets what looks like a mistake in a file that is taken.
    warn: Callable[[str], object] = lambda text: log.warn("{text}", text=text)

    def read(self, path: str) -> BrokerSetup:
        """Returns the broker that the file at `path` describes; blocks. Raises `FileRefused`."""
        try:
            text = self.read_text(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no path"
            raise FileRefused(_unreadable(path, reason)) from error
        return self.parse(text, path)

    def parse(self, text: str, path: str) -> BrokerSetup:
        """Returns the broker that `text`, the content of `path`, describes. Raises
        `FileRefused`."""
        try:
            settings = read_properties(text, path)
            if not any(setting.key in keys_of(kind) for setting in settings for kind in TYPES):
                raise FileRefused(_unreadable(path, "it has no key of a broker"))
            loaded = load(TYPES, list(filter(_is_for_broker, settings)), self.home)
        except SettingRefused as error:
            log.warn("a broker's file is refused: {why}", why=str(error))
            where = f"{error.setting.origin}: {error.setting.key}"
            raise FileRefused(
                f"{where} does not accept its value: the container's log says what it accepts"
            ) from error
        except ConfigError as error:
            log.warn("a broker's file is refused: {why}", why=str(error))
            raise FileRefused(_unreadable(path, "it is no .properties file")) from error
        for notice in loaded.notices:
            if notice.is_warning:
                self.warn(notice.text)
            else:
                log.info("{text}", text=notice.text)
        return self._setup(path, {setting.key: setting for setting in settings}, loaded)

    def _setup(self, path: str, settings: Mapping[str, Setting], loaded: Loaded) -> BrokerSetup:
        config = named_config(loaded[BrokerConfig], self.bind_address)
        store = loaded[MessageStoreConfig]
        port = loaded[NettyServerConfig].listen_port if "listenPort" in settings else DEFAULT_PORT
        if not store.enable_dledger_commit_log:
            config = _with_checked_role(config, store)
            _check_replicas(settings, store)
        if _value(settings, "duplicationEnable") is True:
            raise FileRefused(
                "Can not add broker to container when duplicationEnable is true currently"
            )
        return BrokerSetup(
            path=path,
            identity=_identity(config, store),
            config=msgspec.structs.replace(
                config,
                is_in_broker_container=True,
                namesrv_addr=self.namesrv_addr or config.namesrv_addr,
            ),
            store_config=msgspec.structs.replace(
                store,
                # As in stock, whatever the file says.
                ha_listen_port=port + 1 if port else store.ha_listen_port,
            ),
            listen_port=port,
        )


def _with_checked_role(config: BrokerConfig, store: MessageStoreConfig) -> BrokerConfig:
    is_slave = store.broker_role == "SLAVE"
    if not config.enable_controller_mode:
        if not is_slave:
            return msgspec.structs.replace(config, broker_id=MASTER_ID)
        if config.broker_id <= 0:
            raise FileRefused("slave broker id must be > 0")
    elif is_slave is (config.broker_id == MASTER_ID):
        # Stock says no more; its samples for controller mode have a master's role and id.
        raise FileRefused(
            "add broker return null: with enableControllerMode give brokerId=0 and a master's"
            " brokerRole, or another id and SLAVE"
        )
    return config


def _check_replicas(settings: Mapping[str, Setting], store: MessageStoreConfig) -> None:
    total = _value(settings, "totalReplicas")
    in_sync, least = store.in_sync_replicas, store.min_in_sync_replicas
    if not least <= in_sync <= total:
        raise FileRefused("invalid replicas number")


def _value(settings: Mapping[str, Setting], key: str) -> int | bool:
    """Returns what a key of stock's stores says that may have no effect here."""
    default = stock_default([MessageStoreConfig.__name__], key)
    assert default is not None, key
    parse, value = default
    if key in settings:
        try:
            value = parse(settings[key].value)
        except ValueError as error:
            raise FileRefused(
                f"{settings[key].origin}: {key} does not accept its value: {error}"
            ) from error
    assert isinstance(value, int)
    return value


def _identity(config: BrokerConfig, store: MessageStoreConfig) -> BrokerIdentity:
    broker_id = config.broker_id
    if store.enable_dledger_commit_log:
        number = store.dledger_self_id[1:]
        if not (number.isascii() and number.isdigit()):
            raise FileRefused("dLegerSelfId has to be n and a number, as in n0")
        broker_id = int(number)
    return BrokerIdentity(config.broker_cluster_name, config.broker_name, broker_id)


def _is_for_broker(setting: Setting) -> bool:
    """Returns whether the broker reads the key, or nobody knows it; says so where what it says does
    not count, since the container's file says it."""
    own, shared = (
        any(setting.key in keys_of(kind) for kind in kinds)
        for kinds in ((BrokerConfig, MessageStoreConfig), _OF_CONTAINER)
    )
    if own or not shared or setting.key == "listenPort":
        return True
    log.info(
        "{origin}: {key} has no effect here: what the container's file says counts",
        origin=setting.origin,
        key=setting.key,
    )
    # Its value is looked at all the same.
    return setting.key in keys_of(NettyServerConfig)


def _unreadable(path: str, reason: str) -> str:
    """Stock's remark, and why."""
    return f"{NO_FILE}{path}: {reason}"
