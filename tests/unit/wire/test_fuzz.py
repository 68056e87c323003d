"""Whatever arrives, the answer is a value or the error of its layer, and nothing else."""

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.clients import ConsumerRunningInfo, HeartbeatData
from rocketmq_tw.wire.bodies.registration import decode_registration
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.command import decode_command
from rocketmq_tw.wire.errors import BodyError, HeaderError, WireError
from rocketmq_tw.wire.frame import FrameDecoder, encode_frame
from rocketmq_tw.wire.headers.send import read_send_header

BODIES = st.sampled_from([TopicRouteData, HeartbeatData, ConsumerRunningInfo])
dialect = st.text(alphabet="{}[]:,'\"\\$refabnultopicxX0123456789.eE+-L \n", max_size=200)


@given(st.lists(st.binary(max_size=50)))
def test_stream(chunks):
    decoder = FrameDecoder(limit=4096)
    with suppress(WireError):
        for chunk in chunks:
            for frame in decoder.feed(chunk):
                decode_command(frame)
            assert decoder.buffered <= 4096


@given(st.integers(0, 3), st.binary(max_size=100) | dialect.map(str.encode))
def test_header(serialization, header):
    (frame,) = FrameDecoder().feed(encode_frame(serialization, header))
    with suppress(WireError, HeaderError):
        command = decode_command(frame)
        read_send_header(command.code, command.ext_fields)


@given(BODIES, st.binary(max_size=200) | dialect.map(str.encode), st.booleans())
def test_body(body_type, data, compressed):
    with suppress(BodyError):
        decode_body(body_type, data)
    with suppress(BodyError):
        decode_registration(data, compressed=compressed)


@given(st.dictionaries(st.sampled_from("abcdefghijklmn"), st.text(max_size=20)))
def test_send_fields(fields):
    with suppress(HeaderError):
        read_send_header(310, fields)


@pytest.mark.parametrize("seed", range(5))
def test_damaged_golden_frames(golden_command, seed):
    data = bytearray.fromhex(golden_command["hex"])
    rng = random.Random(seed)
    for _ in range(50):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(8, len(damaged))] = rng.randrange(256)
        with suppress(WireError):
            for frame in FrameDecoder().feed(bytes(damaged)):
                decode_command(frame)
