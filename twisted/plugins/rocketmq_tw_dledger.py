"""The DLedger command of `twistd`."""

from rocketmq_tw.twistd import ServerMaker

rmq_dledger = ServerMaker(
    "rmq-dledger", "A member of a DLedger (Raft) group that serves append and get."
)
