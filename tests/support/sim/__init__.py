"""The simulator: servers as they are in one process, on one clock, network, and disks in memory.

`simulation.py` has the clock, the network and the processes that can be killed, paused and started
again; what is plugged in are the controllers (`controllers.py`), the brokers (`brokers.py`) and a
name server, as a group at a test's command (`group.py`) or in trouble by seed (`world.py`, with its
promises in `checks.py`). `replicas.py` has links between logs that are models, `raft.py` cores
without nodes.
"""
