"""JSON is read the short way or the exact one; where the short way gives a value, it is the exact
one's."""

from __future__ import annotations

from random import Random
from typing import Any

from rocketmq_tw.structs import plain
from rocketmq_tw.structs.plain.errors import Misfit
from rocketmq_tw.structs.plain.kinds import type_kind
from rocketmq_tw.structs.plain.reader import Reader
from tests.support.struct_outcomes import outcome
from tests.support.struct_twins import readable
from tests.support.struct_values import Values


def exactly(text: bytes, of: Any, *, strict: bool) -> Any:
    try:
        return Reader(text, strict).read(type_kind(of))
    except Misfit as misfit:
        raise misfit.error() from misfit


def test_both_ways_of_reading_lead_to_the_same() -> None:
    seed = Random().randrange(1 << 32)
    random = Random(seed)
    values = Values(random)
    for struct_type, twin in readable().items():
        for strict in (True, False):
            decode = plain.json.Decoder(twin, strict=strict).decode
            for _ in range(5):
                text = values.text(values.tree(struct_type, wrong=random.choice((0, 0.1))))
                expected = outcome(exactly, text, twin, strict=strict)
                assert outcome(decode, text) == expected, (seed, struct_type, text)
                expected = outcome(exactly, text, Any, strict=strict)
                assert outcome(plain.json.decode, text) == expected, (seed, text)
