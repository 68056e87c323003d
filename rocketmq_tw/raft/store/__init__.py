"""A member's files in DLedger's format (docs/formats/dledger.md)."""
