"""After how long what failed is tried again. A module has a pause of its own only where a peer's
rules or its own work want another one."""

#: Seconds, where somebody waits and a moment may be enough: a connection, another leader.
RETRY_SOON = 0.2
#: Seconds, as a rule: a store, a disk or another server may refuse for hours.
RETRY_USUAL = 1.0
#: The same in milliseconds.
RETRY_USUAL_MS = 1_000
#: Seconds, where all goes on as it is meanwhile.
RETRY_SLOW = 10.0
