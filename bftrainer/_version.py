"""The version, for whoever must not import the package above it."""

__version__ = "0.1.0"
