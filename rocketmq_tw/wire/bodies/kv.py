"""Names and values."""

from msgspec import field

from rocketmq_tw.wire.bodies.base import Body


class KVTable(Body):
    """Answer to 28 and 219."""

    table: dict[str, str] = field(default_factory=dict)
