"""Turn logs of schedulers and clouds into node logs: when each node of a machine was idle."""

from bftrainer import errors, plugins

__all__ = ["IMPORTERS"]

IMPORTERS = plugins.Plugins("bftrainer.importers", "log format", errors.SettingsError)
"""Importers of other packages, by name or `module:callable`."""
