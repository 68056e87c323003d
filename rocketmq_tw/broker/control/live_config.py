"""The configuration as the admin protocol sees it: 25 changes by allow-list, 26 shows.

A change holds until the broker stops; the file that it started from is never written.
"""

from __future__ import annotations

import javaproperties

from rocketmq_tw.config.base import Config
from rocketmq_tw.config.schema import Key, keys_of
from rocketmq_tw.config.values import format_value
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: What may be changed while the broker runs: keys that are looked at on each use, and that name
#: no path, no address, no command and no identity.
CHANGEABLE = frozenset(
    {
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerPermission",
        "channelExpiredTimeout",
        "clearRetryTopicWhenDeleteTopic",
        "compressedRegister",
        "consumerOffsetUpdateVersionStep",
        "enableMixedMessageType",
        "forceRegister",
        "longPollingEnable",
        "notifyConsumerIdsChangedEnable",
        "registerBrokerTimeoutMills",
        "rejectPullConsumerEnable",
        "rejectTransactionMessage",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "startAcceptSendRequestTimeStamp",
        "traceOn",
        "validateSystemTopicWhenUpdateTopic",
        "cleanFileForciblyEnable",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
        "fileReservedTime",
        "maxTransferBytesOnMessageInDisk",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInDisk",
        "maxTransferCountOnMessageInMemory",
    }
)
#: Stock 4.9's exportConfigs fails without this key of brokers that had filter servers.
_OLD = {"filterServerNums": "0"}
_SECRETS = ("password", "secret", "token", "credential")


class LiveConfig:
    """The configurations of one broker, together."""

    def __init__(self, *configs: Config) -> None:
        self._configs = configs

    def update(self, body: bytes) -> list[str]:
        """Makes the changes of a .properties text, all or none; returns the keys.

        Raises `RequestError` that names the key which cannot be changed, or not so.
        """
        try:
            wanted = javaproperties.loads(body.decode())
        except ValueError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the body is no .properties text: {error}"
            ) from error
        changes = [self._change(key, text) for key, text in wanted.items()]
        for config, attribute, value in changes:
            setattr(config, attribute, value)
        return list(wanted)

    def text(self) -> str:
        """All keys as .properties; never a secret."""
        values = _OLD | {
            name: format_value(getattr(config, key.attribute))
            for config in self._configs
            for name, key in keys_of(type(config)).items()
            if not any(secret in name.lower() for secret in _SECRETS)
        }
        return javaproperties.dumps(values, timestamp=False, sort_keys=True)

    def _change(self, name: str, text: str) -> tuple[Config, str, object]:
        if name in CHANGEABLE:
            for config in self._configs:
                key = keys_of(type(config)).get(name)
                if key is not None:
                    return config, key.attribute, _value(key, text)
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            f"{name} cannot be changed while the broker runs: change its file and restart it",
        )


def _value(key: Key, text: str) -> object:
    try:
        return key.parse(text)
    except ValueError as error:
        raise RequestError(ResponseCode.INVALID_PARAMETER, f"{key.name}={text}: {error}") from error
