"""The broker's configuration and what it tells of itself."""

from time import process_time

import javaproperties
import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.assembly.handlers import merge_handlers
from rocketmq_tw.config.schema import stock_keys
from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.net.live_config import in_config_file, where_possible
from rocketmq_tw.runtime.threads import at_once
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.registration import decode_registration
from rocketmq_tw.wire.bodies.stats import KVTable
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from tests.support.asked import refused
from tests.support.broker import BrokerInMemory, fired
from tests.support.network import FakePeer


def test_the_configuration_is_changed_by_allow_list(
    plane: BrokerInMemory, registrations: list[RemotingCommand]
) -> None:
    with capturedLogs() as logs:
        plane.ask(
            RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=48\nbrokerPermission=4\n"
        )
    said = "fileReservedTime=48 (was 72), brokerPermission=4 (was 6)"
    lost, made = logs
    assert "until the server stops" in formatEvent(lost)
    assert made["changes"] == said
    assert made["peer"] == f"{plane.peer.address} (administrator) at {plane.peer.local_address}"
    assert plane.store_config.file_reserved_time == 48
    assert plane.config.broker_permission == 4
    plane.network.settle()
    (registration,) = registrations
    body = decode_registration(registration.body, compressed=False)
    assert body.topic_config_serialize_wrapper.topic_config_table["T"].perm == 4


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"fileReservedTime=48\nstorePathRootDir=/etc", ResponseCode.NO_PERMISSION),
        (b"fileReservedTime=48\nbrokerConfigPath=/etc/passwd", ResponseCode.NO_PERMISSION),
        (b"fileReservedTime=48\nnamesrvAddr=evil:9876", ResponseCode.NO_PERMISSION),
        (b"fileReservedTime=48\nbrokerPermission=all", ResponseCode.INVALID_PARAMETER),
        (b"fileReservedTime=48\n\xff\xfe", ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_forbidden_change_changes_nothing(
    plane: BrokerInMemory, registrations: list[RemotingCommand], text: bytes, code: ResponseCode
) -> None:
    with refused(code):
        fired(plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text))
    assert plane.store_config.file_reserved_time == 72
    plane.network.settle()
    assert registrations == []


@pytest.mark.parametrize(
    "code", [RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG]
)
@pytest.mark.parametrize("lines", [4_000, 21_333])
def test_a_text_of_many_lines_holds_up_nobody(
    plane: BrokerInMemory, code: RequestCode, lines: int
) -> None:
    began = process_time()
    with pytest.raises(RequestError):
        fired(plane.ask(code, body=b"a\\\n" * lines))
    assert process_time() - began < 1


@pytest.mark.parametrize(
    ("mode", "gone_after"),
    [
        ("enable_slave_acting_master", "brokerNotActiveTimeoutMillis"),
        ("enable_controller_mode", "controllerHeartBeatTimeoutMills"),
    ],
)
def test_heartbeats_have_room_in_the_time_after_which_a_broker_is_gone(
    mode: str, gone_after: str
) -> None:
    keys = {mode: True, "controller_addr": "127.0.0.1:1", "broker_heartbeat_interval": 4_000}
    with capturedLogs() as logs:
        broker = BrokerInMemory(broker=keys)

        def warnings() -> list[str]:
            found = [text for text in map(formatEvent, logs) if "is more than a third of" in text]
            logs.clear()
            return found

        assert len(warnings()) == 1, "a start warns"
        broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"traceOn=false")
        broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerHeartbeatInterval=3000")
        assert not warnings(), "the first has nothing to do with it, the second is well"
        broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerHeartbeatInterval=5000")
        (said,) = warnings()
    assert said.startswith(f"brokerHeartbeatInterval=5000 is more than a third of {gone_after}=")
    for key, value in ((gone_after, 5_000), ("brokerHeartbeatInterval", 10_000)):
        text = f"traceOn=true\n{key}={value}".encode()
        with refused(ResponseCode.INVALID_PARAMETER) as refusal:
            fired(broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text))
        assert f"with {gone_after}=" in refusal.value.remark
    assert not broker.config.trace_on and broker.config.broker_heartbeat_interval == 5_000


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("brokerPermission=8", "give an integer from 0 to 7"),
        ("diskMaxUsedSpaceRatio=100", "give an integer from 10 to 95"),
        ("fileReservedTime=0", "give an integer from 1 to 878400"),
        ("deleteWhen=24", "give hours from 0 to 23, several with ';' between them"),
        ("traceOn=yes", "give true or false"),
    ],
)
def test_a_change_keeps_to_the_ranges_of_the_file(
    plane: BrokerInMemory, text: str, accepted: str
) -> None:
    with refused(ResponseCode.INVALID_PARAMETER) as refusal:
        fired(plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode()))
    assert refusal.value.remark == f"{text}: {accepted}"


@pytest.mark.parametrize(
    "text",
    [
        "storePathRootDir=/store",
        "brokerName=broker-a",
        "listenPort=10911",
        "enablePopBufferMerge=false",
        "estimateAccumulation=true",
        "transactionOpBatchInterval=3000",
    ],
)
def test_what_a_key_says_already_is_no_change(
    plane: BrokerInMemory, registrations: list[RemotingCommand], text: str
) -> None:
    plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=f"{text}\nfileReservedTime=48".encode())
    assert plane.store_config.file_reserved_time == 48
    plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6")
    plane.network.settle()
    assert registrations == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("transactionOpBatchInterval=1000", "has no effect here: it is taken as 3000"),
        ("enablePopBufferMerge=true", "has no effect here: it is taken as false"),
        ("estimateAccumulation=perhaps", "has no effect here: it is taken as true"),
        ("transactionChekInterval=1", "did you mean transactionCheckInterval?"),
        ("brokerName=b", "cannot be changed while the server runs"),
    ],
)
def test_what_cannot_be_changed_says_why(plane: BrokerInMemory, text: str, why: str) -> None:
    with refused(ResponseCode.NO_PERMISSION) as refusal:
        fired(plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode()))
    assert why in refusal.value.remark


@pytest.mark.parametrize(
    "text", ["traceOn=false", "traceOn=true", "configBlackList=", "rocketmqHome=/"]
)
def test_the_black_list_counts(text: str) -> None:
    plane = BrokerInMemory(broker={"config_black_list": "brokerConfigPath; traceOn"})
    with refused(ResponseCode.NO_PERMISSION):
        fired(plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode()))
    assert plane.config.trace_on


@pytest.mark.parametrize(
    "key",
    [
        "useServerSideResetOffset",
        "enableSingleTopicRegister",
        "enableSplitRegistration",
    ],
)
def test_switches_that_stock_changes(plane: BrokerInMemory, key: str) -> None:
    for value in ("true", "false"):
        plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=f"{key}={value}".encode())
        assert f"{key}={value}\n" in plane.ask(RequestCode.GET_BROKER_CONFIG).body.decode()


def test_the_configuration_is_shown(plane: BrokerInMemory) -> None:
    text = plane.ask(RequestCode.GET_BROKER_CONFIG).body.decode()
    assert "brokerName=broker-a\n" in text
    assert "autoCreateTopicEnable=true\n" in text


def test_all_keys_of_stock_are_shown(plane: BrokerInMemory) -> None:
    shown = javaproperties.loads(plane.ask(RequestCode.GET_BROKER_CONFIG).body.decode())
    for class_name in ("BrokerConfig", "MessageStoreConfig", "NettyServerConfig"):
        keys = stock_keys()[class_name]
        missing = {
            name
            for name, key in keys.items()
            if "5.3.3" in key["in"] and key["default"] is not None and name not in shown
        }
        assert missing == set()
    # Those without an effect have stock's default, and accept it.
    assert shown["ackMessageThreadPoolNums"] == "16"
    plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"ackMessageThreadPoolNums=16")
    # What stock works out of two others.
    assert shown["bitMapLengthConsumeQueueExt"] == "112"


@pytest.mark.parametrize(
    "change, said",
    [
        (
            b"brokerName=b",
            "brokerName cannot be changed while the server runs: change its file and restart it",
        ),
        (
            b"fileReservdTime=1",
            "fileReservdTime is no known key: did you mean fileReservedTime?",
        ),
        (b"zzzzzzz=1", "zzzzzzz is no known key"),
    ],
)
def test_a_refused_change_lists_those_that_can_be_made(
    plane: BrokerInMemory, change: bytes, said: str
) -> None:
    with refused(ResponseCode.NO_PERMISSION) as refusal:
        fired(plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=change))
    told, listed = refusal.value.remark.split("; keys that can be changed: ")
    assert told == said
    keys = listed.split(", ")
    assert keys == sorted(keys) and {"fileReservedTime", "autoCreateTopicEnable"} < set(keys)
    assert not {"brokerName", "storePathRootDir", "configBlackList", "accountSecret"} & set(keys)
    for key in keys:
        value = javaproperties.loads(plane.ask(RequestCode.GET_BROKER_CONFIG).body.decode())[key]
        plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=f"{key}={value}".encode())


def test_stock_exports_the_configuration(plane: BrokerInMemory) -> None:
    shown = javaproperties.loads(plane.ask(RequestCode.GET_BROKER_CONFIG).body.decode())
    # What exportConfigs of 4.9.7 copies; it fails where one of them is missing.
    exported = """brokerClusterName brokerId brokerName brokerRole fileReservedTime filterServerNums
        flushDiskType maxMessageSize messageDelayLevel msgTraceTopicName slaveReadEnable traceOn
        traceTopicEnable useTLS autoCreateTopicEnable autoCreateSubscriptionGroup"""
    assert set(exported.split()) <= shown.keys()
    assert (shown["filterServerNums"], shown["useTLS"]) == ("0", "false")


def test_the_runtime_info_has_what_mqadmin_of_both_versions_reads() -> None:
    files = MemoryFiles()
    plane = BrokerInMemory(files)
    plane.put("T", b"one")
    stored_ms = plane.now_ms()
    # Its tables are written, and then the disks are measured.
    plane.clock.advance(10)
    files.capacity = 4 * files.usage("/store").used
    plane.clock.advance(10)
    body = plane.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body
    table = decode_body(KVTable, body).table
    for key in ("putTps", "getTransferredTps", "getTransferedTps"):
        assert len(table[key].split()) == 3
    assert table["commitLogDiskRatio"] == "0.2500"
    assert int(table["commitLogMaxOffset"]) == plane.store.end_offset
    assert int(table["earliestMessageTimeStamp"]) == stored_ms


def test_two_families_may_not_answer_the_same_code(plane: BrokerInMemory) -> None:
    table = {RequestCode.HEART_BEAT: lambda request, peer: None}
    with pytest.raises(ValueError, match="both answer request"):
        merge_handlers([table, table])


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("comment", [b"", b"# ours\n"])
def test_a_change_is_kept_in_the_brokers_file(mark: bytes, comment: bytes) -> None:
    """Also in one in front of which an editor has put the mark of UTF-8."""
    files = MemoryFiles()
    write_atomic(files, "/b.conf", mark + comment + b"fileReservedTime=72\nbrokerName=b\n")
    broker = BrokerInMemory(keep_config=in_config_file(files, "/b.conf", at_once))
    body = b"fileReservedTime=48\nbrokerPermission=4\n"
    assert broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body).code == ResponseCode.SUCCESS
    kept = b"fileReservedTime=48\nbrokerName=b\nbrokerPermission=4\n"
    assert files.read("/b.conf") == mark + comment + kept


def test_a_file_that_cannot_be_changed_keeps_no_change_away() -> None:
    files = MemoryFiles()
    write_atomic(files, "/b.json", b'{"brokerName": "b"}')
    keep = where_possible(in_config_file(files, "/b.json", at_once))
    broker = BrokerInMemory(keep_config=keep)
    with capturedLogs() as logs:
        answer = broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
    assert broker.config.broker_permission == 4
    remark = (
        "the change cannot be kept: the server's file: it is JSON, change it by hand; it holds"
        " until the broker stops"
    )
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, remark)
    assert remark in map(formatEvent, logs)
    assert files.read("/b.json") == b'{"brokerName": "b"}'


def test_a_file_that_is_gone_is_not_made_of_one_change() -> None:
    """The next start would take it for the whole configuration."""
    files = MemoryFiles()
    keep = where_possible(in_config_file(files, "/b.conf", at_once))
    broker = BrokerInMemory(keep_config=keep)
    answer = broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
    assert broker.config.broker_permission == 4
    assert "no such file; it holds until the broker stops" in answer.remark
    assert not files.exists("/b.conf")


def test_a_change_that_could_not_be_kept_is_kept_when_it_is_repeated() -> None:
    files = MemoryFiles()
    keep = where_possible(in_config_file(files, "/b.conf", at_once))
    broker = BrokerInMemory(keep_config=keep)
    for _ in range(2):
        answer = broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
        assert "no such file; it holds until the broker stops" in answer.remark
    write_atomic(files, "/b.conf", b"brokerPermission=6\n")
    answer = broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
    assert not answer.remark
    assert files.read("/b.conf") == b"brokerPermission=4\n"


def test_what_a_stranger_may_not_change_is_not_written_for_one() -> None:
    files = MemoryFiles()
    write_atomic(files, "/b.conf", b"")
    stranger = FakePeer("192.0.2.7:1")
    broker = BrokerInMemory(keep_config=in_config_file(files, "/b.conf", at_once))
    body = b"brokerPermission=6\ntraceOn=true"
    answer = broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body, peer=stranger)
    assert answer.code == ResponseCode.SUCCESS
    assert files.read("/b.conf") == b"traceOn=true\n"


def test_a_change_that_the_command_line_wins_over_says_so() -> None:
    files = MemoryFiles()
    write_atomic(files, "/b.conf", b"")
    keep = in_config_file(files, "/b.conf", at_once, overridden={"fileReservedTime", "listenPort"})
    broker = BrokerInMemory(keep_config=where_possible(keep))
    body = b"fileReservedTime=24\nbrokerPermission=4"
    with capturedLogs() as logs:
        answer = broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)
    remark = (
        "-o on the server's command line gives fileReservedTime too: a start with it does not read"
        " what the file has"
    )
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, remark)
    assert remark in map(formatEvent, logs)
    assert files.read("/b.conf") == b"fileReservedTime=24\nbrokerPermission=4\n"
    assert not broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6").remark


def test_a_broker_without_a_file_says_how_long_a_change_holds() -> None:
    broker = BrokerInMemory()
    for _ in range(2):
        answer = broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
        assert "holds until the server stops" in answer.remark
