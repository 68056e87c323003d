"""The configuration as the admin protocol sees it: 25 changes what is live, 26 shows.

A change holds until the broker stops; the file that it started from is never written.
"""

from __future__ import annotations

import javaproperties

from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import role_keys
from rocketmq_tw.config.base import Config
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.change import NotChangeable, apply_changes, plan_changes
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.config.schema import keys_of
from rocketmq_tw.config.values import format_value
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: What stock refuses whatever `configBlackList` says.
_ALWAYS_BLOCKED = frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"})
#: Stock 4.9's exportConfigs fails without this key of brokers that had filter servers.
_OLD = {"filterServerNums": "0"}


class LiveConfig:
    """The configurations of one broker, together."""

    def __init__(self, role: RoleHolder, config: BrokerConfig, *others: Config) -> None:
        self._role = role
        self._config = config
        self._configs = (config, *others)

    def update(self, body: bytes) -> dict[str, str]:
        """Makes the changes of a .properties text, all or none; returns the keys whose value is
        another now, with it.

        Raises `RequestError` that names the key which cannot be changed, or not so.
        """
        try:
            wanted = javaproperties.loads(body.decode())
        except ValueError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the body is no .properties text: {error}"
            ) from error
        try:
            changes = plan_changes(self._configs, wanted, self._blocked())
        except NotChangeable as error:
            raise RequestError(ResponseCode.NO_PERMISSION, str(error)) from error
        except ConfigError as error:
            raise RequestError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        apply_changes(changes)
        return {change.key.name: change.text for change in changes}

    def text(self) -> str:
        """All keys as .properties, the role as it is now; never a secret."""
        values = _OLD | {
            key.name: format_value(getattr(config, key.attribute))
            for config in self._configs
            for key in keys_of(type(config)).values()
            if not key.is_secret
        }
        values |= role_keys(self._role.state)
        return javaproperties.dumps(values, timestamp=False, sort_keys=True)

    def _blocked(self) -> frozenset[str]:
        named = self._config.config_black_list.split(";")
        return _ALWAYS_BLOCKED.union(name.strip() for name in named)
