"""Settings about cold data, as stock's tools set and read them."""

import javaproperties
import pytest

from rocketmq_tw.broker.control.cold_data import MAX_LIMITED_GROUPS
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.asked import refused
from tests.support.broker import BrokerInMemory


def limits(broker: BrokerInMemory) -> dict[str, int]:
    shown = msgspec.json.decode(broker.ask(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO).body)
    assert shown.keys() == {
        "runtimeTable",
        "configTable",
        "cgColdReadThreshold",
        "globalColdReadThreshold",
        "globalAcc",
    }
    table: dict[str, int] = shown["configTable"]
    return table


def reads_ahead(broker: BrokerInMemory) -> str:
    text = broker.ask(RequestCode.GET_BROKER_CONFIG).body.decode()
    return javaproperties.loads(text)["dataReadAheadEnable"]


def test_limits_of_groups_are_kept_and_removed(plane: BrokerInMemory) -> None:
    assert limits(plane) == {}
    plane.ask(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"a=1024\nb=5")
    plane.ask(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"a=2048")
    assert limits(plane) == {"a": 2048, "b": 5}
    for group in (b"a", b"never"):
        plane.ask(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=group)
    assert limits(plane) == {"b": 5}


@pytest.mark.parametrize(
    "body", [b"a=5\nb=many", b"a=5\nb=-1", b"a=5\nbad name=5", b"a=5\n\xff=5", b"a=5\nb=\\u00"]
)
def test_a_wrong_limit_sets_none(plane: BrokerInMemory, body: bytes) -> None:
    with refused(ResponseCode.INVALID_PARAMETER):
        plane.ask(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=body)
    assert limits(plane) == {}


def test_strangers_cannot_fill_the_memory(plane: BrokerInMemory) -> None:
    full = "\n".join(f"g{number}=1" for number in range(MAX_LIMITED_GROUPS)).encode()
    plane.ask(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=full)
    with refused(ResponseCode.INVALID_PARAMETER) as refusal:
        plane.ask(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"another=1")
    assert "remove some" in refusal.value.remark
    assert len(limits(plane)) == MAX_LIMITED_GROUPS


def test_the_mode_of_reading_ahead_is_kept(plane: BrokerInMemory) -> None:
    def set_mode(mode: str) -> RemotingCommand:
        fields = {"READ_AHEAD_MODE": mode}
        answer = plane.request(
            RemotingCommand(RequestCode.SET_COMMITLOG_READ_MODE, ext_fields=fields)
        )
        assert answer is not None
        return answer

    assert reads_ahead(plane) == "true"
    assert set_mode("1").remark == "set commitlog readahead mode success, mode: 1"
    assert reads_ahead(plane) == "false"
    wrong = set_mode("7")
    assert wrong.code == ResponseCode.INVALID_PARAMETER
    assert "give 0 to read ahead or 1 not to" in (wrong.remark or "")
    assert reads_ahead(plane) == "false"
    assert set_mode("0").code == ResponseCode.SUCCESS
    assert reads_ahead(plane) == "true"


def test_they_are_kept_until_the_broker_stops_as_in_stock() -> None:
    broker = BrokerInMemory()
    broker.ask(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"a=1024")
    random = RemotingCommand(
        RequestCode.SET_COMMITLOG_READ_MODE, ext_fields={"READ_AHEAD_MODE": "1"}
    )
    broker.request(random)
    assert (limits(broker), reads_ahead(broker)) == ({"a": 1024}, "false")
    broker.stop()
    again = BrokerInMemory(broker.files)
    assert (limits(again), reads_ahead(again)) == ({}, "true")


@pytest.mark.parametrize(
    "code",
    [RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON],
)
def test_what_is_about_rocksdb_says_why_not(plane: BrokerInMemory, code: RequestCode) -> None:
    with refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED) as refusal:
        plane.ask(code)
    assert "plain files" in refusal.value.remark
