"""Every body as stock of both versions writes it, read and written."""

import json
import zlib

import pytest

from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire import fastjson
from rocketmq_tw.wire.bodies import clients, groups, queues, registration, route, stats, topics
from rocketmq_tw.wire.bodies.base import DataVersion, decode_body, encode_body
from rocketmq_tw.wire.errors import BodyError

#: stock's class -> ours
TYPES = {
    "BrokerData": route.BrokerData,
    "BrokerMemberGroup": route.BrokerMemberGroup,
    "BrokerStatsData": stats.BrokerStatsData,
    "CheckClientRequestBody": clients.CheckClientBody,
    "ClusterInfo": route.ClusterInfo,
    "ConsumeMessageDirectlyResult": clients.ConsumeMessageDirectlyResult,
    "ConsumeStats": queues.ConsumeStats,
    "ConsumeStatsList": queues.ConsumeStatsList,
    "ConsumerConnection": clients.ConsumerConnection,
    "ConsumerOffsetSerializeWrapper": queues.ConsumerOffsetTable,
    "ConsumerRunningInfo": clients.ConsumerRunningInfo,
    "CreateTopicListRequestBody": topics.CreateTopicListBody,
    "DataVersion": DataVersion,
    "DelayOffsetSerializeWrapper": queues.DelayOffsetTable,
    "GetBrokerMemberGroupResponseBody": route.BrokerMemberGroupBody,
    "GetConsumerListByGroupResponseBody": clients.ConsumerIdList,
    "GetConsumerStatusBody": queues.ConsumerStatusBody,
    "GroupForbidden": groups.GroupForbidden,
    "GroupList": topics.GroupList,
    "HARuntimeInfo": stats.HARuntimeInfo,
    "HeartbeatData": clients.HeartbeatData,
    "KVTable": stats.KVTable,
    "LockBatchRequestBody": queues.LockBatchRequestBody,
    "LockBatchResponseBody": queues.LockBatchResponseBody,
    "MessageQueue": queues.MessageQueue,
    "ProducerConnection": clients.ProducerConnection,
    "ProducerTableInfo": clients.ProducerTable,
    "QueryConsumeQueueResponseBody": clients.ConsumeQueueBody,
    "QueryConsumeTimeSpanBody": queues.ConsumeTimeSpanBody,
    "QueryCorrectionOffsetBody": queues.CorrectionOffsetBody,
    "QuerySubscriptionResponseBody": clients.SubscriptionQueryBody,
    "QueueData": route.QueueData,
    "RegisterBrokerBody": registration.RegisterBrokerBody,
    "ResetOffsetBody": queues.ResetOffsetBody,
    "ResetOffsetBodyForC": queues.ResetOffsetBodyForC,
    "SubscriptionGroupConfig": groups.SubscriptionGroupConfig,
    "SubscriptionGroupList": groups.SubscriptionGroupList,
    "SubscriptionGroupWrapper": groups.SubscriptionGroupTable,
    "TopicConfig": topics.TopicConfig,
    "TopicConfigAndMappingSerializeWrapper": topics.TopicConfigTable,
    "TopicConfigSerializeWrapper": topics.TopicConfigTable,
    "TopicList": topics.TopicList,
    "TopicRouteData": route.TopicRouteData,
    "TopicStatsTable": queues.TopicStatsTable,
    "UnlockBatchRequestBody": queues.UnlockBatchRequestBody,
}
#: Stock writes the times of this one for people too, from getters without a setter.
WITH_TEXTS_FOR_PEOPLE = {"QueryConsumeTimeSpanBody"}


def assert_holds(value: object, tree: object) -> None:
    """`value` is what stock's object was: `tree` has its fields and ["map": pairs] for maps."""
    if isinstance(value, msgspec.Struct):
        infos = msgspec.structs.fields(value)
        attributes = {info.encode_name: info.name for info in infos}
        assert isinstance(tree, dict)
        for field, expected in tree.items():
            name = field if field in attributes else field[2].lower() + field[3:]
            assert_holds(getattr(value, attributes[name]), expected)
    elif isinstance(value, dict):
        assert isinstance(tree, dict) and set(tree) == {"map"}
        assert len(value) == len(tree["map"])
        for (key, item), (expected_key, expected) in zip(value.items(), tree["map"], strict=True):
            assert_holds(key, expected_key)
            assert_holds(item, expected)
    elif isinstance(value, list):
        assert isinstance(tree, list) and len(value) == len(tree)
        for item, expected in zip(value, tree, strict=True):
            assert_holds(item, expected)
    else:
        assert value == tree and type(value) is type(tree)


def assert_contains(ours: object, stock: object) -> None:
    """All that stock wrote stands in ours, which may have 5.x's fields besides."""
    if isinstance(stock, dict):
        assert isinstance(ours, dict)
        for key, value in stock.items():
            assert_contains(ours[key], value)
    elif isinstance(stock, list):
        assert isinstance(ours, list) and len(ours) == len(stock)
        for our_item, item in zip(ours, stock, strict=True):
            assert_contains(our_item, item)
    else:
        assert ours == stock


def test_body_is_read(golden_body):
    body = decode_body(TYPES[golden_body["type"]], golden_body["text"].encode())
    assert_holds(body, golden_body["value"])


def test_body_is_read_from_standard_json(golden_body):
    body_type = TYPES[golden_body["type"]]
    from_dialect = decode_body(body_type, golden_body["text"].encode())
    assert decode_body(body_type, golden_body["standard"].encode()) == from_dialect


def test_body_is_written(golden_body):
    name, text = golden_body["type"], golden_body["text"].encode()
    body = decode_body(TYPES[name], text)
    written = encode_body(body)
    assert decode_body(TYPES[name], written) == body
    if name in WITH_TEXTS_FOR_PEOPLE:
        return
    if golden_body["stock"] == "5.3.3":
        assert written == text
    else:
        assert_contains(fastjson.loads(written), fastjson.loads(text))


def test_body_is_written_as_standard_json(golden_body):
    if golden_body["type"] in WITH_TEXTS_FOR_PEOPLE:
        return
    body = decode_body(TYPES[golden_body["type"]], golden_body["text"].encode())
    ours = json.loads(encode_body(body, standard_json=True))
    stock = json.loads(golden_body["standard"])
    if golden_body["stock"] == "5.3.3":
        assert ours == stock


def test_nulls_are_defaults(golden_body):
    """Collections that are null become empty, or absent where a version may not have them."""
    body = decode_body(TYPES[golden_body["type"]], golden_body["nulls"].encode())
    defaults = TYPES[golden_body["type"]]()
    for name, value in json.loads(golden_body["nulls"]).items():
        attribute = next(
            info.name for info in msgspec.structs.fields(body) if info.encode_name == name
        )
        if value is None:
            assert getattr(body, attribute) == getattr(defaults, attribute)


def test_body_with_text_behind_it_is_refused(golden_body):
    with pytest.raises(BodyError):
        decode_body(TYPES[golden_body["type"]], golden_body["text"].encode() + b"}")


def test_body_that_is_cut_is_refused(golden_body):
    text = golden_body["text"].encode()
    for end in range(0, len(text) - 1, 1 + len(text) // 50):
        with pytest.raises(BodyError):
            decode_body(TYPES[golden_body["type"]], text[:end])


def test_registration_both_ways(golden_registration):
    compressed = golden_registration["compressed"]
    data = bytes.fromhex(golden_registration["hex"])
    body = registration.decode_registration(data, compressed=compressed)
    expected = golden_registration["value"]
    if compressed:
        # The deflated form has neither the topics' flags nor the details of their mappings.
        expected = json.loads(json.dumps(expected))
        wrapper = expected["topicConfigSerializeWrapper"]
        wrapper.pop("topicQueueMappingDetailMap", None)
        wrapper.pop("mappingDataVersion", None)
        for _, config in wrapper["topicConfigTable"]["map"]:
            del config["topicSysFlag"], config["order"]
        table = body.topic_config_serialize_wrapper.topic_config_table
        wrapper["topicConfigTable"]["map"] = [
            [config["topicName"], config] for _, config in wrapper["topicConfigTable"]["map"]
        ]
        assert list(table) == [name for name, _ in wrapper["topicConfigTable"]["map"]]
        if mappings := wrapper.get("topicQueueMappingInfoMap"):
            mappings["map"] = [[info["topic"], info] for _, info in mappings["map"]]
    assert_holds(body, expected)
    written = registration.encode_registration(body, compressed=compressed)
    if compressed and golden_registration["stock"] == "5.3.3":
        assert zlib.decompress(written) == zlib.decompress(data)
    assert registration.decode_registration(written, compressed=compressed) == body
