import pytest

from rocketmq_tw.wire.command import VERSION_5_3_3
from rocketmq_tw.wire.versions import version_name


# Ordinals of stock 5.3.3's list.
@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (211, "older than V4_0_0"),
        (212, "V4_0_0_SNAPSHOT"),
        (213, "V4_0_0"),
        (407, "V4_9_7"),
        (411, "V4_9_9"),
        (412, "V5_0_0_SNAPSHOT"),
        (VERSION_5_3_3, "V5_3_3"),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
        (10_000, "HIGHER_VERSION"),
        (-1, "older than V4_0_0"),
    ],
)
def test_names_of_ordinals(ordinal: int, name: str) -> None:
    assert version_name(ordinal) == name
