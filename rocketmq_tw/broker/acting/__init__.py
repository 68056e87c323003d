"""Slave Acting Master: a slave stands in for a master that is gone.

Public: `Acting` (`part.py`), `LockQuorum` (`locks.py`); `PreOnline` (`pre_online.py`), `Absence`
(`absence.py`) and `TakingBack` (`taking_back.py`), for a master that comes back; `StandingBy`
(`standing_by.py`), for the slaves beside an acting one. Which brokers live: `living.py`; where an
acting master puts messages: `escape.py`. Documents: "Slave Acting Master".
"""
