"""Transactions: 37 from a producer, 39 to one."""

from rocketmq_tw.wire.headers.base import Header, Int, Long, RpcHeader


class EndTransactionRequestHeader(RpcHeader):
    """37; `commit_or_rollback` is a transaction type of the system flag: 8 commit, 12
    rollback, 0 unknown."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool = False
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(RpcHeader):
    """39, to a producer."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(Header):
    """323."""

    topic: str | None = None
    msg_id: str | None = None
