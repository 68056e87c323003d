"""Typed request and response bodies, a module for each family."""
