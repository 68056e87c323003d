"""Builds a server's object graph from its configuration; nothing else.

Public: `Options` and `makeService` of each module that is named after a twistd command.
"""

from rocketmq_tw.services.process import collect_rarely

# Here, since looking for garbage among what a server imports takes a tenth of its start.
collect_rarely()
