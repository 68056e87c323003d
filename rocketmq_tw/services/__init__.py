"""What `twistd` starts: an `Options` and a `makeService` in the module of each server.

`failing`, `memory`, `process`, `reactor` and `log_escapes` are what the servers have in common.
"""

from rocketmq_tw.services.memory import look_rarely

# Here, since looking for garbage among what a server imports takes a tenth of its start.
look_rarely()
