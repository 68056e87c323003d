"""Stored messages and their records: properties, flags, ids, batches, names.

Public: a message on its way into a store (`model.StoredMessage`) and batches of them (`batch`);
records to and from bytes (`record`), and single fields of them (`layout`); ids (`ids`), names
(`names`), properties (`properties`), flags (`model`), compressed bodies (`compression`), hashes of
tags (`tags`).
"""
