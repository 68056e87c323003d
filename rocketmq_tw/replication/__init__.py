"""Master and slave: sans-IO frames and link states, and the Twisted links around them.

`frames` and `flow` are shared by every kind of HA; `master_link` and `slave_link` are the classic
protocol's two ends; `group_transfer` answers sends that wait for slaves; `service` is the master's
listening side and `client` the slave's connecting one.
"""
