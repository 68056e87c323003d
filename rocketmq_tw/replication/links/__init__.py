"""One end of a link between a master and a slave, whatever its protocol: sockets, timers, waiting
sends, and the states that classic and auto-switch HA share."""
