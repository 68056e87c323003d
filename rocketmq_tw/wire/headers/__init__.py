"""Typed request and response headers, a module for each family."""
