"""Typed configuration from stock's .properties keys."""
