"""Typed request and response headers, a module for each family.

Public: the classes, by stock's names, and `base`, which reads and writes them.
"""
