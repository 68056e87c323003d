"""Commit log, consume queue, index, checkpoint, recovery, retention in stock's formats."""
