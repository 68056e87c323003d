"""Looks through the files of a store that no broker has open: ours or stock's, of any size.

It reads by the declarations of `rocketmq_tw/formats` and shares no code with the store, so that
it is a second opinion. Public: `check.check_store`; `walk.LogWalk` reads the records of a log.

A log is read once, from its start to its end; what queues and index have is in the same order and
is read beside it. So the memory that is needed grows with the number of queues only.
"""
