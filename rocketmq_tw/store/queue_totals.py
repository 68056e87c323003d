"""What is counted over all consume queues."""

from __future__ import annotations


class QueueTotals:
    """Of all queues of a table, kept up to date by each of them: a checkpoint that went through
    thousands would hold up everyone else."""

    def __init__(self) -> None:
        #: The sum of all max offsets.
        self.units = 0
        #: Queues that have a file: one that never got a message has none.
        self.with_files = 0
