"""Refuses a start, before it changes anything, where the log has lost what was safe: its files, or
what its last one had.

Only what a power loss cannot leave behind proves that: a checkpoint is written once the log is
synced up to what it says, and a cut takes it back first; each file of the log is durable before
anything leads into it; a clean stop syncs the log after the queues lead there. A log of a DLedger
group is judged by its member, which may copy all of it from its leader.
"""

from __future__ import annotations

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.message.record import parse_head
from rocketmq_tw.store.checkpoint import Checkpoint
from rocketmq_tw.store.consume_queue import ConsumeQueue
from rocketmq_tw.store.errors import DamagedStoreError
from rocketmq_tw.store.interface import ILog
from rocketmq_tw.store.paths import StorePaths, dledger_members
from rocketmq_tw.store.queues import QueueTable


def lacks_files(log: ILog, end: int) -> bool:
    """Returns whether a log that goes up to `end` has no file there."""
    return not log.front_size and end > log.files_end


class LostLog:
    """Judges the log of one store; each call raises `DamagedStoreError` that says what to do."""

    def __init__(self, log: ILog, files: IFiles, paths: StorePaths) -> None:
        self._log = log
        self._files = files
        self._paths = paths

    def judge_by_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Refuses a log that ends in front of what the checkpoint calls safe, or that is gone
        though the checkpoint, of stock's, tells of messages."""
        log, path = self._log, self._paths.checkpoint
        if lacks_files(log, checkpoint.safe_offset):
            self._refuse(f"{path} says that it is safe up to {checkpoint.safe_offset}")
        is_gone = not log.front_size and not log.file_starts
        if is_gone and checkpoint.safe_offset < 0 < checkpoint.physic_msg_timestamp:
            self._refuse(f"{path} says that it had messages")

    def judge_by_queues(self, queues: QueueTable, checkpoint: Checkpoint, *, clean: bool) -> None:
        """Refuses a log that ends in front of what queues lead to, where a crash cannot be why.
        `clean`: the last stop was orderly."""
        log = self._log
        queue = queues.furthest
        if queue is None or log.front_size:
            return
        end = queue.max_physical
        name = f"{self._paths.consume_queue}/{queue.topic}/{queue.queue_id}"
        if not log.file_starts:
            # But one that was on its way to another beginning.
            if end > 0 and not checkpoint.is_between_logs:
                self._refuse(f"{name} leads up to {end}")
        elif clean and end > log.min_offset:
            if checkpoint.safe_offset < 0 and lacks_files(log, end):
                self._refuse(f"{name} leads up to {end}")
            self._refuse_older(queue, name)

    def _refuse_older(self, queue: ConsumeQueue, name: str) -> None:
        """Refuses a log without the last message that queues lead to, as where an older copy of
        its last file was put back."""
        unit = queue.unit(queue.max_offset - 1)
        if unit is None or unit.is_filler or not unit.is_written:
            return
        head = parse_head(self._log.peek(unit.size, unit.position), check_body=False)
        if head is None or (head.size, head.physical_offset) != (unit.size, unit.position):
            raise DamagedStoreError(
                f"the commit log in {self._paths.commit_log} has no message at {unit.position},"
                f" and {name} leads there: its last file is an older copy, or damaged; nothing was"
                f" changed; restore it, or {self._go_on()}"
            )

    def _refuse(self, proof: str) -> None:
        log, paths = self._log, self._paths
        found = (
            f"the commit log in {paths.commit_log} ends at {log.files_end}, and {proof}"
            if log.file_starts
            else f"there is no commit log in {paths.commit_log}, and {proof}"
        )
        members = dledger_members(self._files, paths.root)
        if members:
            raise DamagedStoreError(
                f"{found}: nothing was changed; the log of a DLedger group is in {members[0]}:"
                f" set enableDLegerCommitLog=true, or {self._leave_group()}"
            )
        if log.file_starts:
            raise DamagedStoreError(
                f"{found}: nothing was changed; restore its last files, or {self._go_on()}"
            )
        raise DamagedStoreError(
            f"{found}: nothing was changed; mount or restore it, or change storePathCommitLog; to"
            f" begin anew without its messages, move all of {paths.root} but config away"
        )

    def _go_on(self) -> str:
        paths = self._paths
        # Where the tool looks for the log by itself.
        elsewhere = paths.commit_log != f"{paths.root}/commitlog"
        given = f" --log {paths.commit_log}" if elsewhere else ""
        return f"go on without them after `rmqadmin store repair {paths.root}{given} --cut`"

    def _leave_group(self) -> str:
        """Returns how to go on without the group's messages: queues, index and checkpoint tell of
        them."""
        log, root = self._log, self._paths.root
        inside, _, below = self._paths.commit_log.partition(f"{root}/")
        kept = "config"
        if log.file_starts and not inside:
            kept = f"{below.partition('/')[0]} and config"
        return f"go on without its messages once all of {root} but {kept} is moved away"
