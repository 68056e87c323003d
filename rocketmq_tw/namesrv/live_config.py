"""The configuration as the wire sees it: what may be read, what may be changed while running."""

from __future__ import annotations

from collections.abc import Sequence

from rocketmq_tw.config.base import Config
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.properties import (
    ConfigError,
    change_properties,
    read_properties,
    write_properties,
)
from rocketmq_tw.config.schema import keys_of, may_be_told
from rocketmq_tw.config.values import format_value
from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: The keys that 318 may change; none of them is a path, an address or a secret.
CHANGEABLE = frozenset(
    {
        "deleteTopicWithBrokerRegistration",
        "enableAllTopicList",
        "enableTopicList",
        "needWaitForService",
        "orderMessageEnable",
        "returnOrderTopicConfigToBroker",
        "supportActingMaster",
        "waitSecondsForService",
    }
)


class NamesrvLiveConfig:
    """Reads and changes `config`; `others` can only be read."""

    def __init__(self, files: IFiles, config: NamesrvConfig, others: Sequence[Config] = ()) -> None:
        self._files = files
        self._config = config
        self._others = others

    def text(self) -> str:
        """Every key that may be told, as a .properties file."""
        return write_properties(
            (key.name, format_value(getattr(config, key.attribute)))
            for config in (self._config, *self._others)
            for key in keys_of(type(config)).values()
            if may_be_told(key.name)
        )

    def update(self, body: bytes) -> list[str]:
        """Applies the .properties text in `body` and keeps it in the configuration file.

        All of it or nothing: raises `RequestError` where a key may not be changed, a value is
        wrong or the file cannot be written. Returns the names of the keys.
        """
        keys = keys_of(NamesrvConfig)
        changeable = CHANGEABLE - set(self._config.config_black_list.split(";"))
        try:
            settings = read_properties(body.decode(), "the request")
        except (UnicodeDecodeError, ConfigError) as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no properties: {error}") from error
        values = {}
        for setting in settings:
            if setting.key not in changeable:
                raise RequestError(
                    ResponseCode.NO_PERMISSION,
                    f"{setting.key} cannot be changed while running;"
                    f" these can: {', '.join(sorted(changeable))}",
                )
            try:
                values[setting.key] = keys[setting.key].parse(setting.value)
            except ValueError as error:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR, f"{setting.key}={setting.value}: {error}"
                ) from error
        self._keep({name: format_value(value) for name, value in values.items()})
        for name, value in values.items():
            setattr(self._config, keys[name].attribute, value)
        return list(values)

    def _keep(self, changes: dict[str, str]) -> None:
        if not changes:
            return
        path = self._config.config_store_path
        try:
            old = self._files.read(path).decode("latin-1") if self._files.exists(path) else ""
            write_atomic(self._files, path, change_properties(old, changes).encode("latin-1"))
        except OSError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the change cannot be kept: {error.strerror}"
            ) from error
