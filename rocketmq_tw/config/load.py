"""From settings to typed configurations: defaults < file < -o < flags, the later one wins."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from rocketmq_tw.config.base import Config
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.config.properties import (
    ConfigError,
    Setting,
    read_config_file,
    read_properties,
    write_properties,
)
from rocketmq_tw.config.schema import UNSUPPORTED_SWITCHES, all_stock_names, keys_of, nearest
from rocketmq_tw.config.values import format_value
from rocketmq_tw.structs import msgspec

C = TypeVar("C", bound=Config)


class Notice(NamedTuple):
    """Something that the operator may want to know; a warning where it looks like a mistake."""

    is_warning: bool
    text: str


class SettingRefused(ConfigError):
    """A setting that cannot be taken; its text has the value. `setting` is the one, for those who
    may not tell the value."""

    def __init__(self, text: str, setting: Setting) -> None:
        super().__init__(text)
        self.setting = setting


class Derived(NamedTuple):
    """The value of a key that is given none, and what it follows from: another key, for example."""

    value: str
    origin: str


class Loaded:
    """The typed configurations of one server, and what was noticed on the way."""

    def __init__(
        self,
        configs: Sequence[Config],
        notices: list[Notice],
        origins: Mapping[str, str] | None = None,
    ) -> None:
        """`origins`: of keys whose value follows from something else, what that is."""
        self._configs = {type(config): config for config in configs}
        self.notices = notices
        self._origins = origins or {}

    def __getitem__(self, config_type: type[C]) -> C:
        config = self._configs[config_type]
        assert isinstance(config, config_type)
        return config

    def __contains__(self, config_type: object) -> bool:
        return config_type in self._configs

    def properties(self, derived: Mapping[str, Derived] | None = None) -> str:
        """Returns all effective values as a .properties file that loads to the same: those of
        `derived` in place of the given ones. A comment in front of a value that follows from
        something else says what that is."""
        parts = []
        written: set[str] = set()
        for config in self._configs.values():
            keys = [key for key in keys_of(type(config)).values() if key.name not in written]
            written.update(key.name for key in keys)
            parts.append(f"# {type(config).__name__}\n")
            for key in keys:
                value = format_value(getattr(config, key.attribute))
                origin = self._origins.get(key.name)
                if derived is not None and key.name in derived:
                    value, origin = derived[key.name]
                if origin is not None:
                    parts.append(f"# {key.name} follows from {origin}\n")
                parts.append(write_properties([(key.name, value)]))
        return "".join(parts)


def load(types: Sequence[type[Config]], settings: Iterable[Setting], home: str) -> Loaded:
    """Configurations of `types` from `settings`, the later ones of which win.

    As in stock a key goes to every class that has it. `home` stands for `${user.home}` in values.
    Raises `ConfigError` that names the setting's place and what is accepted there, also for a
    switch of stock that promises what is not there and for an unknown key that must be known.
    """
    values: dict[type[Config], dict[str, Any]] = {config_type: {} for config_type in types}
    notices = []
    known = all_stock_names().union(*map(keys_of, types))
    promises: dict[str, Setting] = {}
    origins: dict[str, str] = {}
    for setting in settings:
        if setting.key in UNSUPPORTED_SWITCHES:
            promises[setting.key] = setting
        takers = [config_type for config_type in types if setting.key in keys_of(config_type)]
        if not takers:
            notice = _without_effect(setting, known)
            if notice.is_warning and setting.must_be_known:
                raise ConfigError(notice.text)
            notices.append(notice)
        if setting.follows is None:
            origins.pop(setting.key, None)
        else:
            origins[setting.key] = setting.follows
        for config_type in takers:
            key = keys_of(config_type)[setting.key]
            try:
                values[config_type][key.attribute] = key.parse(setting.value)
            except ValueError as error:
                raise SettingRefused(
                    f"{setting.origin}: {setting.key}={setting.value}: {error}", setting
                ) from error
    for setting in promises.values():
        if setting.value.strip().lower() == "true":
            missing = UNSUPPORTED_SWITCHES[setting.key]
            raise SettingRefused(
                f"{setting.origin}: {setting.key}={setting.value}: {missing} is not there:"
                " give false to start without it",
                setting,
            )
    configs = [_expand_home(config_type(**values[config_type]), home) for config_type in types]
    return Loaded(configs, notices, origins)


def _without_effect(setting: Setting, known: frozenset[str]) -> Notice:
    if setting.key in known:
        return Notice(False, f"{setting.origin}: {setting.key} has no effect here")
    similar = nearest(setting.key, known)
    hint = f": did you mean {similar}?" if similar else ""
    return Notice(True, f"{setting.origin}: {setting.key} is no known key{hint}")


def _expand_home(config: Config, home: str) -> Config:
    return msgspec.structs.replace(
        config,
        **{
            name: value.replace("${user.home}", home)
            for name, value in msgspec.structs.asdict(config).items()
            if isinstance(value, str)
        },
    )


#: What the keys begin with that a client's end of TLS is made by.
_OF_TLS_CLIENTS = ("tls.client.", "tls.test.mode.")


def read_tls_config(path: str, *, for_server: bool = False) -> TlsConfig:
    """Reads the TLS keys of a .properties file, such as the file that stock's `tls.config.file`
    names. Raises `ConfigError` where the file cannot be read or a value is wrong. The file of a
    client has to say how a client speaks TLS, which a broker's file does not; with `for_server`,
    for a process that takes TLS, it need not."""
    text = read_config_file(path)
    settings = [setting._replace(must_be_known=True) for setting in read_properties(text, path)]
    if not for_server and not any(s.key.startswith(_OF_TLS_CLIENTS) for s in settings):
        raise ConfigError(
            f"{path}: no key that begins with tls.client. says whom to trust and what to show:"
            " servers are checked with tls.client.authServer=true, tls.test.mode.enable=false and"
            " tls.client.trustCertPath=FILE; with tls.client.authServer=false nobody is"
        )
    return load((TlsConfig,), settings, os.path.expanduser("~"))[TlsConfig]
