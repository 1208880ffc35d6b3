"""Turn logs of schedulers and clouds into node logs: when each node of a machine was idle."""

from bftrainer.errors import SettingsError
from bftrainer.plugins import Plugins

IMPORTERS = Plugins("bftrainer.importers", "log format", SettingsError)
"""Importers of other packages, by name or `module:callable`."""
