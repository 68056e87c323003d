"""What is remembered of messages that clients left."""

from __future__ import annotations

import attrs

from rocketmq_tw.proxy.messaging.left_messages import LeftMessages


@attrs.define(eq=False)
class Message:
    place: str
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


def test_a_later_delivery_takes_the_place() -> None:
    left = LeftMessages[Message]()
    former, later = Message("place", 100), Message("place", 200)
    left.add(former, 0)
    left.add(later, 0)
    left.discard(former)
    assert left.get("place", 150) is later
