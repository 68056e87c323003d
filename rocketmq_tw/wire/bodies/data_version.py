"""The version of a broker's topics, groups or offsets."""

from rocketmq_tw.wire.bodies.base import Body


class DataVersion(Body):
    """Grows with each change; `timestamp` is in ms. Stock 4.9.7 has no `state_version`."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int, state_version: int = 0) -> "DataVersion":
        """The version after one more change."""
        return DataVersion(state_version=state_version, timestamp=now_ms, counter=self.counter + 1)
