"""A small network and pictures for it."""

from tiny_network import pictures, tiny  # noqa: F401 - fixtures
