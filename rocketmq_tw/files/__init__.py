"""The narrow file interface: POSIX, in memory, faulty."""
