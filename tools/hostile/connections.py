"""Behaviours below the requests: floods, torn frames, connections that only stay."""

from __future__ import annotations

import struct

from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import ONEWAY_FLAG
from tests.support.load import send_request
from tests.support.random_requests import random_request
from tools.hostile.attack import Attack, frame
from tools.hostile.reading import pull

_MIB = 1 << 20
#: Oneway messages of one run: what they take on the disk is bounded.
_MOST_ONEWAY = 500_000
#: What a handshake of TLS begins with: a record of 512 bytes that holds a ClientHello.
_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


def oneway_messages(attack: Attack) -> None:
    """Messages that want no answer, as fast as they are taken."""
    request = send_request("flood", 0, b"x" * 1024)
    once = frame(request.code, request.ext_fields, request.body, flag=ONEWAY_FLAG)
    many = once * 64

    def next_piece() -> bytes:
        return many if attack.done * 64 < _MOST_ONEWAY else b""

    attack.flood(attack.target.broker, 8, next_piece)


def oneway_bodies(attack: Attack) -> None:
    """Held pulls that want no answer, each with a body of 4 MiB."""
    data = frame(
        RequestCode.PULL_MESSAGE, pull("flood", suspend=60_000), b"x" * (4 * _MIB), flag=ONEWAY_FLAG
    )
    attack.flood(attack.target.broker, 4, lambda: data)


def torn_frames(attack: Attack) -> None:
    """300 frames of 1 MiB of which half comes, and then a byte now and then."""
    crowd = attack.crowd(attack.target.broker, 300)
    half = (_MIB - 4).to_bytes(4, "big") + b"\0\0\1\0" + b"{" * (_MIB // 2)
    for connection in crowd:
        if attack.going:
            attack.push(connection, half)
    attack.trickle(crowd, b"{")


def announced_lengths(attack: Attack) -> None:
    """Frames that announce as much as a frame may have, or far more, and bring a few bytes."""

    def lengths() -> bytes:
        frame_length = attack.dice.choice([1 << 24, (1 << 24) - 64, (1 << 31) - 1, (1 << 32) - 1])
        header_length = attack.dice.choice([0, (1 << 24) - 128, (1 << 24) - 1])
        return struct.pack(">II", frame_length, header_length) + b"{}" * 8

    attack.flood(attack.target.broker, 100, lengths)


def idle_connections(attack: Attack) -> None:
    """Connections that do nothing, as many as there may be and some more."""
    crowd = attack.crowd(attack.target.broker, 4096)
    attack.done += len(crowd)
    attack.hold()


def hung_handshakes(attack: Attack) -> None:
    """Handshakes of TLS that begin and go on with a byte now and then."""
    crowd = attack.crowd(attack.target.broker, 300)
    for connection in crowd:
        attack.push(connection, _HELLO)
    attack.trickle(crowd)


def random_requests(attack: Attack) -> None:
    """Every code with any fields, values and bodies."""
    attack.flood(attack.target.broker, 8, lambda: random_request(attack.dice))


def strange_slaves(attack: Attack) -> None:
    """Connections to the port of slaves that report any offset, half of one, or nothing."""
    strange = [0, 1, -1, 1 << 40, (1 << 63) - 1, -(1 << 63)]

    def report() -> bytes:
        data = struct.pack(">q", attack.dice.choice(strange))
        return data[: attack.dice.choice([3, 8, 8])]

    attack.crowd(attack.target.ha, 300)
    attack.flood(attack.target.ha, 16, report)
