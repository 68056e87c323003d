"""A member's files in DLedger's format (docs/formats/dledger.md).

Public: `member.MemberStore`, which opens, repairs and writes them all. `format` has the bytes of an
entry, `recovery.scan` reads a data file without a member.
"""
