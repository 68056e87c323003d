"""A configuration that was read stays as it is, but for the keys that may change."""

import gc
from weakref import ref

import pytest

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.change import (
    NotChangeable,
    apply_changes,
    change,
    on_change,
    plan_changes,
)
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.structs import msgspec


def test_attributes_are_not_assigned() -> None:
    config = BrokerConfig()
    with pytest.raises(AttributeError):
        config.trace_on = False  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del config.trace_on
    assert config.trace_on


def test_a_live_key_changes_and_subscribers_hear_of_it() -> None:
    config = BrokerConfig()
    heard: list[frozenset[str]] = []
    unsubscribe = on_change(config, heard.append)
    changed = change(config, {"shortPollingTimeMills": "200", "traceOn": "TRUE"})
    assert (config.short_polling_time_mills, config.trace_on) == (200, True)
    assert changed == ["shortPollingTimeMills"], "true is what it was"
    assert heard == [{"shortPollingTimeMills"}]
    change(config, {"shortPollingTimeMills": "200"})
    assert len(heard) == 1
    unsubscribe()
    unsubscribe()
    change(config, {"shortPollingTimeMills": "300"})
    assert len(heard) == 1


@pytest.mark.parametrize(
    ("bad", "error", "why"),
    [
        ({"brokerName": "b"}, NotChangeable, "brokerName cannot be changed while"),
        ({"brokerId": "x"}, NotChangeable, "brokerId cannot be changed while"),
        ({"brokerPermission": "8"}, ConfigError, "brokerPermission=8: give an integer from 0 to 7"),
        ({"brokerPermision": "4"}, NotChangeable, "did you mean brokerPermission?"),
        ({"zzzzzzzz": "4"}, NotChangeable, "zzzzzzzz is no known key"),
    ],
)
def test_all_or_none(bad: dict[str, str], error: type[Exception], why: str) -> None:
    config = BrokerConfig()
    heard: list[frozenset[str]] = []
    on_change(config, heard.append)
    with pytest.raises(error) as caught:
        change(config, {"traceOn": "false"} | bad)
    assert why in str(caught.value)
    assert config == BrokerConfig()
    assert heard == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("z" * 9_000, "4"),
        ("brokerPermission", "8" * 9_000),
        ("brokerPermission", "z" * 9_000),
    ],
)
def test_what_is_refused_is_not_repeated_at_length(key: str, value: str) -> None:
    """The remark goes back to whoever sent it."""
    with pytest.raises(ConfigError) as caught:
        change(BrokerConfig(), {key: value})
    assert str(caught.value).startswith(key[:20])
    assert len(str(caught.value)) < 300
    assert "Exceeds the limit" not in str(caught.value)


def test_several_configurations_change_together() -> None:
    broker, store = BrokerConfig(), MessageStoreConfig()
    heard = []
    on_change(broker, lambda names: heard.append(("broker", store.file_reserved_time, names)))
    on_change(store, lambda names: heard.append(("store", broker.trace_on, names)))
    apply_changes(plan_changes([broker, store], {"traceOn": "false", "fileReservedTime": "48"}))
    assert heard == [("broker", 48, {"traceOn"}), ("store", False, {"fileReservedTime"})], (
        "subscribers see all values"
    )


def test_a_subscriber_that_fails_keeps_no_other_from_being_told() -> None:
    config = BrokerConfig()
    heard: list[frozenset[str]] = []

    def fail(names: frozenset[str]) -> None:
        raise RuntimeError("no")

    on_change(config, fail)
    on_change(config, heard.append)
    with pytest.raises(RuntimeError):
        change(config, {"traceOn": "false"})
    assert heard == [{"traceOn"}]
    assert not config.trace_on


def test_a_copy_has_values_of_its_own() -> None:
    config = BrokerConfig()
    heard: list[frozenset[str]] = []
    on_change(config, heard.append)
    copy = msgspec.structs.replace(config, broker_name="b")
    change(copy, {"traceOn": "false"})
    assert config.trace_on
    assert heard == []


class Follower:
    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.heard: list[frozenset[str]] = []
        on_change(config, self.changed)

    def changed(self, names: frozenset[str]) -> None:
        self.heard.append(names)


def test_what_follows_a_configuration_is_told_and_not_kept_alive() -> None:
    config = BrokerConfig()
    follower = Follower(config)
    change(config, {"traceOn": "false"})
    assert follower.heard == [{"traceOn"}]
    gone = ref(follower)
    del follower
    gc.collect()
    assert gone() is None
    change(config, {"traceOn": "true"})
