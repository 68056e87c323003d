"""Popping: groups whose members share all queues, and acknowledge message by message.

Public: `Pop` (`part.py`). What was popped is a check point in the revive topic
(docs/formats/pop.md) before anyone has it; what nobody acknowledges in time goes to the group's
retry topic.
"""
