"""What keys accept beyond what their type says: a value that cannot work stops the start.

Of the keys with an effect here; numbers that stand in no table are 0 or more.
"""

from __future__ import annotations

from rocketmq_tw.config.values import (
    INT,
    LONG,
    Parse,
    addresses,
    choice,
    delay_levels,
    host,
    hours_of_day,
    integer,
    or_nothing,
    path,
)

#: Stock's slave reads frames through a buffer of 4 MiB, with 12 bytes of header.
MAX_HA_BATCH = 4 * 1024 * 1024 - 12
#: A century, so that no sum of milliseconds leaves Java's long.
_MAX_HOURS = 100 * 366 * 24

_TEXTS: dict[str, Parse] = {
    "namesrvAddr": addresses,
    "controllerAddr": addresses,
    "haMasterAddress": addresses,
    "bindAddress": host,
    "brokerIP1": or_nothing(host),
    "brokerIP2": or_nothing(host),
    "brokerRole": choice("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "flushDiskType": choice("ASYNC_FLUSH", "SYNC_FLUSH"),
    "deleteWhen": hours_of_day,
    "messageDelayLevel": delay_levels,
    "storePathRootDir": path,
    "kvConfigPath": path,
    "tls.server.mode": choice("disabled", "permissive", "enforcing"),
    "tls.server.need.client.auth": choice("none", "optional", "require"),
}

_RANGES: dict[str, tuple[int, int]] = {
    "listenPort": (0, 65535),
    "namesrvListenPort": (0, 65535),
    "haListenPort": (0, 65535),
    "metricsPromExporterPort": (0, 65535),
    "brokerId": (0, LONG[1]),
    "brokerPermission": (0, 7),
    "defaultTopicQueueNums": (1, 65536),
    "reviveQueueNum": (1, 65536),
    "registerNameServerPeriod": (1000, INT[1]),
    "scanNotActiveBrokerInterval": (10, INT[1]),
    "mappedFileSizeCommitLog": (4096, INT[1]),
    "mappedFileSizeConsumeQueue": (20, INT[1]),
    # An index file has 4 bytes a slot and 20 an entry, and Java maps 2 GiB of a file at most.
    "maxHashSlotNum": (1, 100_000_000),
    "maxIndexNum": (2, 80_000_000),
    "fileReservedTime": (1, _MAX_HOURS),
    "diskMaxUsedSpaceRatio": (10, 95),
    "diskSpaceCleanForciblyRatio": (0, 100),
    "diskSpaceWarningLevelRatio": (0, 100),
    "accessMessageInMemoryMaxRatio": (0, 100),
    "haTransferBatchSize": (1, MAX_HA_BATCH),
    "maxHaTransferByteInSecond": (1, LONG[1]),
    "frameMaxLength": (1024, INT[1]),
    "maxBytesInFlight": (1 << 20, LONG[1]),
}

#: Intervals, time-outs, sizes of steps: 0 would be at once, never or nothing at all.
_POSITIVE = frozenset(
    {
        "brokerHeartbeatInterval",
        "brokerNotActiveTimeoutMillis",
        "channelExpiredTimeout",
        "cleanResourceInterval",
        "clientChannelMaxIdleTimeSeconds",
        "connectTimeoutMillis",
        "consumerOffsetUpdateVersionStep",
        "defaultQueryMaxNum",
        "deleteFileBatchMax",
        "flushConsumerOffsetInterval",
        "flushDelayOffsetInterval",
        "flushIntervalCommitLog",
        "haHousekeepingInterval",
        "haSendHeartbeatInterval",
        "inSyncReplicas",
        "maxConnections",
        "maxMessageSize",
        "maxMsgsNumBatch",
        "maxTransferBytesOnMessageInDisk",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInDisk",
        "maxTransferCountOnMessageInMemory",
        "maxUnreadBytes",
        "maxUnreadSeconds",
        "minInSyncReplicas",
        "registerBrokerTimeoutMills",
        "sendHeartbeatTimeoutMillis",
        "serverChannelMaxIdleTimeSeconds",
        "serverSocketBacklog",
        "shortPollingTimeMills",
        "slaveTimeout",
        "splitRegistrationSize",
        "syncFlushTimeout",
        "travelCqFileNumWhenGetMessage",
    }
)

#: Switches of stock that promise what is not there: to go on without it would leave a broker open
#: to everyone, or three masters where a group should have one.
NOT_KEPT = {
    "aclEnable": "access control",
    "authenticationEnabled": "access control",
    "authorizationEnabled": "access control",
    "enableControllerInNamesrv": "the controller",
    "enableControllerMode": "controller mode",
    "enableDLegerCommitLog": "a broker's commit log in a DLedger group",
}


def text_parser(name: str) -> Parse | None:
    """How the text of a key that is no number is read; None where anything goes."""
    return _TEXTS.get(name)


def number_parser(name: str, *, is_int: bool) -> Parse:
    """How a number is read; `is_int` where stock keeps it in 32 bits."""
    lowest, highest = _RANGES.get(name, (int(name in _POSITIVE), LONG[1]))
    return integer(lowest, min(highest, INT[1]) if is_int else highest)


def named_keys() -> frozenset[str]:
    """The keys that the tables name."""
    return _POSITIVE.union(_TEXTS, _RANGES, NOT_KEPT)
