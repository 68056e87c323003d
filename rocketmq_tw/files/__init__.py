"""The narrow file interface: all that the rooms above ask of a disk.

Public: `interface.IFiles` and `IFile`, with `posix.PosixFiles` for real disks, `memory.MemoryFiles`
and `faulty.FaultyFiles` for tests and `reserve.ReservingFiles`, which keeps descriptors back;
`atomic.write_atomic` for files that are replaced as a whole.
"""
