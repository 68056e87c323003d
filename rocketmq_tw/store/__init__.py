"""Commit log, consume queues, index, checkpoint, recovery and retention in stock's formats.

Public, for the rooms above: `message_store.MessageStore`; what it answers and what it asks of its
log (`interface`); reads of a queue to its end (`queue_batches`); what can go wrong (`errors`);
where it keeps what (`paths`); files of tables (`table_files`). `segments`, with `handles`, are the
files that a DLedger member is made of as well. All else is the store's own.
"""
