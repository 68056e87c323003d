"""The formats of files and frames, declared once with `construct` and by nothing else.

The code that serves messages has readers and writers of its own, which are fast. They are tested
against these declarations (`tests/unit/formats`), and the check of a store reads by them
(`rocketmq_tw/storecheck`). The pages in docs/formats explain the fields. All numbers are big-endian
and signed.
"""
