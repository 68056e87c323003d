"""The DLedger command of `twistd`."""

from twisted.application.service import ServiceMaker

rmq_dledger = ServiceMaker(
    "rmq-dledger",
    "rocketmq_tw.services.dledger",
    "A member of a DLedger (Raft) group that serves append and get.",
    "rmq-dledger",
)
