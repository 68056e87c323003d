"""Master and slave of classic HA: frames and link states without I/O, and the Twisted links.

Public: `service.HAService` with its `HASettings`, the master's listening side; `client.HAClient`,
the slave's connecting one; what they ask of a log and are asked themselves (`interfaces`);
`frames.LinkError`. The rest is theirs alone.
"""
