"""Maps by queue id: what anybody sends as keys costs no more than its length."""

import pytest

from rocketmq_tw.wire import fastjson
from rocketmq_tw.wire.bodies.base import MAX_TOPIC_QUEUES, QUEUE_IDS, decode_request
from rocketmq_tw.wire.bodies.registration import decode_registration
from rocketmq_tw.wire.bodies.topics import TopicQueueMappingDetail
from rocketmq_tw.wire.errors import BodyError, WireError

#: All have the hash 0.
ALIKE = 2**61 - 1


def in_json(keys, quote='"', value=1):
    return "{" + ",".join(f"{quote}{key}{quote}:{value}" for key in keys) + "}"


@pytest.mark.parametrize("quote", ['"', ""])
@pytest.mark.parametrize("field", ["currIdMap", "hostedQueues"])
def test_queue_ids_are_read_as_numbers(field, quote):
    value = 1 if field == "currIdMap" else []
    text = f'{{"{field}":{in_json((0, 7, QUEUE_IDS - 1), quote, value)}}}'
    for written in (text, text.replace(f'"{field}"', field)):
        read = decode_request(TopicQueueMappingDetail, written.encode())
        maps = {"currIdMap": read.curr_id_map, "hostedQueues": read.hosted_queues}
        assert maps.pop(field) == {0: value, 7: value, QUEUE_IDS - 1: value}
        assert list(maps.values()) == [{}]


@pytest.mark.parametrize("key", [-1, QUEUE_IDS, ALIKE, 1 << 70, "x", "", "1_0", "1.5", "\u0661"])
@pytest.mark.parametrize("field", ["currIdMap", "hostedQueues"])
def test_what_is_no_queue_id_is_refused(field, key):
    value = 1 if field == "currIdMap" else []
    for quote in ('"', ""):
        text = f'{{"{field}":{in_json((key,), quote, value)}}}'
        with pytest.raises(BodyError):
            decode_request(TopicQueueMappingDetail, text.encode())


def test_more_queues_than_a_topic_has_are_refused():
    for count, extra in ((MAX_TOPIC_QUEUES, 0), (MAX_TOPIC_QUEUES, 1)):
        data = f'{{"currIdMap":{in_json(range(count + extra))}}}'.encode()
        if extra:
            with pytest.raises(BodyError, match=f"{MAX_TOPIC_QUEUES} is the limit"):
                decode_request(TopicQueueMappingDetail, data)
        else:
            assert len(decode_request(TopicQueueMappingDetail, data).curr_id_map) == count


def test_a_registration_with_queue_ids_of_one_hash_is_refused():
    mapping = f'{{"currIdMap":{in_json(range(0, 50 * ALIKE, ALIKE))}}}'
    body = f'{{"topicConfigSerializeWrapper":{{"topicQueueMappingInfoMap":{{"T":{mapping}}}}}}}'
    with pytest.raises(BodyError, match="queue id"):
        decode_registration(body.encode(), compressed=False)


def test_the_dialect_has_no_more_numbers_as_keys():
    text = f"{{'currIdMap':{in_json(range(MAX_TOPIC_QUEUES + 1), '')}}}"
    with pytest.raises(WireError, match="numbers as keys"):
        fastjson.loads(text.encode())
