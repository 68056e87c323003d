"""Amounts as people read them."""

from __future__ import annotations


def human_size(size: int) -> str:
    """Bytes with a binary unit."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.1f} {unit}" if unit != "B" else f"{size} B"
        amount /= 1024
    return f"{amount:.1f} TiB"
