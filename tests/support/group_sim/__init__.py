"""Whole groups in memory with one seed: controllers and brokers as they are, on a clock, a network,
disks and threads that a schedule of faults has in its hand.
"""
