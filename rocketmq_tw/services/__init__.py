"""Builds a server's object graph from its configuration; nothing else."""

from rocketmq_tw.services.memory import look_rarely

# Here, since looking for garbage among what a server imports takes a tenth of its start.
look_rarely()
