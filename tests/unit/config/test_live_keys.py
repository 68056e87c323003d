"""What may change while a server runs has a class: for everybody, or for administrators only."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin

import pytest

from rocketmq_tw.config.base import Config, Format
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.config.load import load
from rocketmq_tw.config.namesrv import NamesrvConfig, StandaloneConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig, TlsConfig
from rocketmq_tw.config.properties import ConfigError, Setting
from rocketmq_tw.config.schema import keys_of
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.config.values import addresses, host, networks, path
from rocketmq_tw.structs import msgspec

ALL: tuple[type[Config], ...] = (
    BrokerConfig,
    ControllerConfig,
    MessageStoreConfig,
    NamesrvConfig,
    NettyClientConfig,
    NettyServerConfig,
    StandaloneConfig,
    TlsConfig,
)

#: Live keys of which no value removes data, takes back a promise or ends a service: everybody may
#: change them. A new live key is for administrators unless it stands here.
FOR_EVERYBODY = {
    "compressedRegister",
    "consumerOffsetUpdateVersionStep",
    "delayOffsetUpdateVersionStep",
    "defaultMessageRequestMode",
    "defaultPopShareQueueNum",
    "electMasterMaxRetryCount",
    "enableCalcFilterBitMap",
    "enableMixedMessageType",
    "enableSingleTopicRegister",
    "filterSupportRetry",
    "forceRegister",
    "initPopOffsetByCheckMsgInMem",
    "isProcessReadEvent",
    "loadBalancePollNameServerInterval",
    "longPollingEnable",
    "maxTransferBytesOnMessageInDisk",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInDisk",
    "maxTransferCountOnMessageInMemory",
    "notifyConsumerIdsChangedEnable",
    "orderMessageEnable",
    "popResponseReturnActualRetryTopic",
    "processReadEvent",
    "brokerElectionPriority",
    "returnOrderTopicConfigToBroker",
    "shortPollingTimeMills",
    "traceOn",
    "transactionOpMsgMaxSize",
    "useServerSideResetOffset",
}


def formats_of(annotation: Any) -> list[Any]:
    rules = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return [rule.parse for rule in rules if isinstance(rule, Format)]


def test_only_what_harms_nothing_is_changed_for_everybody() -> None:
    keys = [key for kind in ALL for key in keys_of(kind).values() if key.is_live]
    assert {key.name for key in keys if not key.is_for_administrators} == FOR_EVERYBODY


@pytest.mark.parametrize(
    "name",
    [
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
        "fileReservedTime",
        "deleteWhen",
        "enableElectUncleanMaster",
        "needWaitForService",
        "waitSecondsForService",
    ],
)
def test_what_removes_data_or_ends_service_is_for_administrators(name: str) -> None:
    (key,) = [keys_of(kind)[name] for kind in ALL if name in keys_of(kind)]
    assert key.is_live and key.is_for_administrators


def test_no_address_no_network_and_no_path_is_live() -> None:
    for kind in ALL:
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        for key in keys_of(kind).values():
            kinds = formats_of(fields[key.name].type)
            is_place = key.is_local_path or not {addresses, host, networks, path}.isdisjoint(kinds)
            looks_like_one = any(
                word in key.name.lower() for word in ("addr", "path", "port", "peers", "ip1", "ip2")
            )
            looks_like_one &= key.type is not bool
            assert not (key.is_live and (is_place or looks_like_one)), key.name


@pytest.mark.parametrize("text", ["", "10.1.0.0/16", "10.1.2.3; fd00::/8", "192.0.2.0/24;"])
def test_networks(text: str) -> None:
    loaded = load((NettyServerConfig,), [Setting("adminAddresses", text, "x:1")], "/")
    assert loaded[NettyServerConfig].admin_addresses == text.strip()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.1.0.1/16", "has host bits set"),
        ("everywhere", "give networks such as 10.1.0.0/16"),
        ("10.1.0.0/16,10.2.0.0/16", "several with ';' between them"),
    ],
)
def test_what_is_no_network_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load((NettyServerConfig,), [Setting("adminAddresses", text, "x:1")], "/")
