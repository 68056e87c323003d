"""How answers of mqadmin are compared, and that the page of docs says what the cases say."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.support.jars import PROJECT
from tests.support.mqadmin_cases import CASES, ELECTED_CASES, ENDLESS, NEW, OLD, SLAVE_CASES, Case
from tests.support.mqadmin_comparison import Outcome, difference, page


def test_the_page_has_what_the_cases_say() -> None:
    kept = (PROJECT / "docs" / "mqadmin.md").read_text()
    assert kept == page(), "run: python -m tools.compare_mqadmin --page > docs/mqadmin.md"


def test_numbers_times_and_addresses_are_no_difference() -> None:
    case = Case("clusterList")
    stock = "broker-a   0  127.0.0.1:10911  3.5 ms  2026-11-23 20:00:00"
    assert not difference(case, stock, "broker-a 0 127.0.0.1:999 1 ms 2026-11-23 21:11:11,123")
    assert difference(case, stock, stock.replace("broker-a", "broker-b"))


def test_values_of_keys_count_but_where_they_follow_from_the_machine() -> None:
    case = Case("getBrokerConfig", exact=True)
    assert difference(case, "fileReservedTime = 72", "fileReservedTime = 71")
    assert not difference(case, "pullMessageThreadPoolNums = 20", "pullMessageThreadPoolNums = 32")


def test_a_refusal_is_told_by_its_code_and_not_by_its_remark() -> None:
    case = Case("deleteTopic")
    stock = "MQBrokerException: CODE: 17  DESC: none BROKER: 127.0.0.1:1\nSee http://a"
    assert not difference(case, stock, "MQBrokerException: CODE: 17  DESC: x BROKER: 127.0.0.1:2")
    assert difference(case, stock, "MQBrokerException: CODE: 1  DESC: x BROKER: 127.0.0.1:2")


def test_the_id_of_a_message_that_is_sent_again_is_no_difference() -> None:
    one, other = (f"originalMsgId={digit * 32}SendResult [x]" for digit in "1A")
    assert not difference(Case("queryMsgById"), one, other)


def test_the_order_of_properties_is_that_of_a_hash_table() -> None:
    case = Case("printMsg")
    for start in ("Properties:    ", "properties="):
        assert not difference(case, f"{start}{{TAGS=a, KEYS=b}}", f"{start}{{KEYS=b, TAGS=a}}")
        assert difference(case, f"{start}{{TAGS=a, KEYS=b}}", f"{start}{{TAGS=a, KEYS=c}}")


def test_the_order_of_lines_counts_but_in_hash_tables() -> None:
    assert difference(Case("topicRoute"), "a\nb", "b\na")
    assert not difference(Case("topicList", unordered=True), "a\nb", "b\na")


def test_more_lines_are_fine_where_the_case_says_so() -> None:
    case = Case("brokerStatus", more_is_fine=True)
    assert not difference(case, "a\nb", "a\nours\nb")
    assert difference(case, "a\nb", "a\nours") == ["-b"]


def test_each_difference_says_what_ours_prints() -> None:
    """Else any answer would do where ours is not stock's, also a failure."""
    cases = (*CASES, *ELECTED_CASES, *SLAVE_CASES)
    assert [case.line for case in cases if case.unlike and not case.prints] == []


def test_each_command_that_names_a_broker_is_compared_on_a_slave_too() -> None:
    """With each version of the tools."""

    def commands(cases: list[Case], address: str) -> set[tuple[str, str]]:
        named = [case for case in cases if address in case.line.split()]
        return {(case.command, version) for case in named for version in case.versions}

    masters = commands(CASES, "$address")
    assert ("brokerStatus", OLD) in masters
    assert masters - commands(SLAVE_CASES, "$slave") == set()


#: Options of mqadmin 5.3.3 that no call of the comparison has, by why, and those of each command.
NOT_COMPARED = {
    "runs again and again": {
        "clusterList": ("-i",),
        "getBrokerEpoch": ("-i",),
        "getSyncStateSet": ("-i",),
        "haStatus": ("-i",),
    },
    "about accounts, which there are none of yet": {
        "copyAcl": ("-s",),
        "copyUser": ("-u",),
        "createAcl": ("-i",),
        "createUser": ("-t",),
        "deleteAcl": ("-r",),
        "listAcl": ("-s", "-r"),
        "listUser": ("-f",),
        "updateAcl": ("-i",),
        "updateUser": ("-t", "-s"),
    },
    "about RocksDB, in which nothing is": {
        "checkRocksdbCqWriteProgress": ("-t", "-cf"),
        "exportMetadataInRocksDB": ("-j",),
        "rocksDBConfigToJson": ("-p", "-e", "-j"),
    },
    "of classes that mqadmin does not have as commands": {
        "consumer": ("-s",),
        "resetOffsetByTimeOld": ("-f", "-c"),
    },
    "of a mapping in a file: the requests are those of -b and -c": {
        "remappingStaticTopic": ("-mf", "-fr"),
        "updateStaticTopic": ("-mf", "-fr"),
    },
}


def test_each_option_is_in_a_call() -> None:
    known = PROJECT / "tests" / "unit" / "admin" / "mqadmin.json"
    options = json.loads(known.read_text())[NEW]
    used: dict[str, set[str]] = {}
    for case in (*CASES, *ENDLESS, *ELECTED_CASES, *SLAVE_CASES):
        if NEW in case.versions:
            used.setdefault(case.command, set()).update(shlex.split(case.line))
    left_out = {
        (command, f"-{letter}")
        for command, all_of_it in options.items()
        for letter, name, *_ in all_of_it
        if letter not in (None, "n", "h") and not {f"-{letter}", f"--{name}"} & used[command]
    }
    named = {
        (command, letter)
        for commands in NOT_COMPARED.values()
        for command, letters in commands.items()
        for letter in letters
    }
    assert left_out == named


@pytest.mark.parametrize(
    ("ours", "is_as_expected"),
    [("CODE: 29  DESC: give 1", True), ("NullPointerException", False), ("success", False)],
)
def test_a_difference_counts_where_it_is_the_one_that_is_named(
    ours: str, is_as_expected: bool
) -> None:
    case = Case("updateX -v many", unlike="refused", prints="CODE: 29  DESC: give")
    outcome = Outcome(case, difference(case, "success", ours), ours)
    assert outcome.is_as_expected is is_as_expected


def test_what_a_case_prints_has_to_be_there_though_stock_says_as_little() -> None:
    case = Case("startMonitoring", prints="group-a")
    nothing, all_of_it = "beginRound\nendRound", "beginRound\ngroup-a\nendRound"
    assert not Outcome(case, difference(case, nothing, nothing), nothing).is_as_expected
    assert not Outcome(case, difference(case, nothing, all_of_it), all_of_it).is_as_expected
    assert Outcome(case, difference(case, all_of_it, all_of_it), all_of_it).is_as_expected
