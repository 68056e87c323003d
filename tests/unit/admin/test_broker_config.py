from __future__ import annotations

from rocketmq_tw.wire.codes import RequestCode


def test_the_configuration_of_one_broker(world) -> None:
    shown = world.rmqadmin("getBrokerConfig -b 10.0.0.2:10911")
    assert ["brokerName", "broker-a"] in shown.lines
    assert shown.lines[0][:3] == ["Key", "at", "10.0.0.2:10911"]


def test_the_configurations_of_a_cluster(world) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    found = world.rmqadmin("getBrokerConfig -c DefaultCluster --output json").json["brokers"]
    assert [(one["address"], one["config"]["brokerName"]) for one in found] == [
        ("10.0.0.2:10911", "broker-a"),
        ("10.0.0.3:10911", "broker-b"),
    ]


def test_a_broker_that_is_down_hides_no_configuration(world) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    world.network.stop("10.0.0.2:10911")
    outcome = world.rmqadmin("getBrokerConfig -c DefaultCluster")
    assert outcome.status == 1
    assert outcome.err.startswith("rmqadmin: 10.0.0.2:10911: ")
    assert ["brokerName", "broker-b"] in [line.split() for line in outcome.out.splitlines()]
    assert world.rmqadmin("getBrokerConfig -b 10.0.0.2:10911").status == 1


def test_a_key_is_changed_on_all_masters(world) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    outcome = world.rmqadmin(
        "updateBrokerConfig -c DefaultCluster -k shortPollingTimeMills -v 24 --output json"
    )
    assert outcome.json == {
        "key": "shortPollingTimeMills",
        "value": "24",
        "brokers": ["10.0.0.2:10911", "10.0.0.3:10911"],
        "remarks": dict.fromkeys(
            ("10.0.0.2:10911", "10.0.0.3:10911"),
            "the change holds until the server stops, which was started without a file (-c)",
        ),
    }
    changed = [broker.config.short_polling_time_mills for broker in world.brokers.values()]
    assert changed == [24, 24]


def test_with_a_the_slaves_are_changed_too(world) -> None:
    slave = world.add_broker(
        "slave", "10.0.0.3", store={"broker_role": "SLAVE", "ha_master_address": "10.0.0.2:10912"},
        broker_id=1,
    )  # fmt: skip
    world.wait_for(lambda: slave in world.rmqadmin("clusterList").out)
    command = "updateBrokerConfig -c DefaultCluster -k traceOn -v false"
    assert slave not in world.rmqadmin(command).out
    assert f"traceOn=false on {slave}" in world.rmqadmin(f"{command} -a true").out


def test_a_change_that_is_refused_names_the_key(world) -> None:
    for key, value, why in (
        ("listenPort", "1", "listenPort cannot be changed while the server runs"),
        ("fileReservedTime", "soon", "give an integer from"),
        ("fileReservedTime", "24", "taken from administrators only"),
    ):
        outcome = world.rmqadmin(f"updateBrokerConfig -b 10.0.0.2:10911 -k {key} -v {value}")
        assert (outcome.status, outcome.out) == (1, "")
        assert why in outcome.err


def test_what_a_broker_says_of_a_change_is_shown(world) -> None:
    def held_until_stop(request, peer):
        return request.response(remark="it holds until the broker stops")

    world.let_answer("10.0.0.2:10911", RequestCode.UPDATE_BROKER_CONFIG, held_until_stop)
    command = "updateBrokerConfig -b 10.0.0.2:10911 -k shortPollingTimeMills -v 24"
    assert world.rmqadmin(command).out == (
        "shortPollingTimeMills=24 on 10.0.0.2:10911\n"
        "10.0.0.2:10911: it holds until the broker stops\n"
    )
    remarks = world.rmqadmin(f"{command} --output json").json["remarks"]
    assert remarks == {"10.0.0.2:10911": "it holds until the broker stops"}
    world.network.stop(world.add_broker("broker-b", "10.0.0.3"))
    outcome = world.rmqadmin("updateBrokerConfig -c DefaultCluster -k traceOn -v false")
    assert (outcome.status, outcome.out) == (1, "")
    told, failed = outcome.err.splitlines()
    assert told == "rmqadmin: 10.0.0.2:10911: it holds until the broker stops"
    assert failed.endswith("; done on 10.0.0.2:10911")


def test_what_stocks_answers_say_without_meaning_it_is_not_shown(world) -> None:
    def stocks(request, peer):
        return request.response(remark="not set any response code")

    world.let_answer("10.0.0.2:10911", RequestCode.UPDATE_BROKER_CONFIG, stocks)
    outcome = world.rmqadmin("updateBrokerConfig -b 10.0.0.2:10911 -k traceOn -v false")
    assert outcome.out == "traceOn=false on 10.0.0.2:10911\n"
