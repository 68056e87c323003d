"""What is remembered of messages that clients left."""

from __future__ import annotations

import attrs

from rocketmq_tw.proxy.messaging.left_messages import LeftMessages


@attrs.define(eq=False)
class Message:
    delivery: str
    handle_ends: int


def test_they_are_forgotten_when_their_handles_are_over() -> None:
    left = LeftMessages[Message]()
    late, early, over = Message("late", 200), Message("early", 100), Message("over", 50)
    for message in (late, early, over):
        left.add(message, 50)
    assert (left.get("late", 60), left.get("early", 60), left.get("over", 60)) == (
        late,
        early,
        None,
    )
    assert left.get("early", 100) is None
    assert len(left) == 1
    left.discard(late)
    assert len(left) == 0
