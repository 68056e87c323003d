"""Refuses a start, before it changes anything, where the log has lost files which were safe.

Only what a power loss cannot leave behind proves that: a checkpoint is written once the log is
synced up to what it says, and a cut takes it back first; a clean stop syncs the log after the
queues lead there. A log of a DLedger group is judged by its member, which may copy all of it from
its leader.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketmq_tw.store.checkpoint import Checkpoint
from rocketmq_tw.store.consume_queue import ConsumeQueue
from rocketmq_tw.store.errors import DamagedStoreError
from rocketmq_tw.store.interface import ILog
from rocketmq_tw.store.paths import StorePaths


def lacks_files(log: ILog, end: int) -> bool:
    """Returns whether a log that goes up to `end` has no file there."""
    return not log.front_size and end > log.files_end


def refuse_if_behind_checkpoint(log: ILog, checkpoint: Checkpoint, paths: StorePaths) -> None:
    """Raises `DamagedStoreError` where the log ends in front of what the checkpoint calls safe."""
    if lacks_files(log, checkpoint.safe_offset):
        _refuse(log, paths, f"{paths.checkpoint} says that it is safe", checkpoint.safe_offset)


def refuse_if_behind_queues(
    log: ILog,
    queues: Iterable[ConsumeQueue],
    checkpoint: Checkpoint,
    paths: StorePaths,
    *,
    clean: bool,
    has_checkpoint: bool,
) -> None:
    """Raises `DamagedStoreError` where the log ends in front of what queues lead to, and a crash
    cannot be why. `clean`: the last stop was orderly; `has_checkpoint`: there is one, which may
    have been taken back."""
    if checkpoint.safe_offset >= 0:
        return
    # Each file of the log is durable before it is written, but an empty log may have been on its
    # way to another beginning.
    is_gone = not log.file_starts and (not has_checkpoint or checkpoint.physic_msg_timestamp > 0)
    if not clean and not is_gone:
        return
    for queue in queues:
        if lacks_files(log, queue.max_physical):
            name = f"{paths.consume_queue}/{queue.topic}/{queue.queue_id}"
            _refuse(log, paths, f"{name} leads", queue.max_physical)


def _refuse(log: ILog, paths: StorePaths, who: str, end: int) -> None:
    # Where the tool looks for the log by itself.
    elsewhere = paths.commit_log != f"{paths.root}/commitlog"
    given = f" --log {paths.commit_log}" if elsewhere else ""
    if log.file_starts:
        raise DamagedStoreError(
            f"the commit log in {paths.commit_log} ends at {log.files_end}, and {who} up to {end}:"
            " nothing was changed; restore its last files, or go on without them after `rmqadmin"
            f" store repair {paths.root}{given} --cut`"
        )
    raise DamagedStoreError(
        f"there is no commit log in {paths.commit_log}, and {who} up to {end}: nothing was changed;"
        " mount or restore it, or change storePathCommitLog; to begin anew without its messages,"
        f" move all of {paths.root} but config away"
    )
