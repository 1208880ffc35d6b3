"""All importers by name; each is imported when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from bftrainer.errors import LogError, SettingsError, suggestion

if TYPE_CHECKING:
    from bftrainer.traces.reading import Importer

__all__ = ["get_importer", "importer_names", "recognised"]

# In the order in which they are asked whether a log is theirs: Cobalt's lines are also of PBS's form.
_HOMES = {
    "slurm": "bftrainer.traces.slurm:SlurmImporter",
    "swf": "bftrainer.traces.swf:SwfImporter",
    "cobalt": "bftrainer.traces.cobalt:CobaltImporter",
    "pbs": "bftrainer.traces.pbs:PbsImporter",
    "lsf": "bftrainer.traces.lsf:LsfImporter",
    "alcf": "bftrainer.traces.alcf:AlcfImporter",
    "flux": "bftrainer.traces.flux:FluxImporter",
    "spot": "bftrainer.traces.spot:SpotImporter",
    "counts": "bftrainer.traces.counts:CountsImporter",
    "batsim": "bftrainer.traces.batsim:BatsimImporter",
}


def importer_names() -> tuple[str, ...]:
    """Names of all formats, sorted."""
    return tuple(sorted(_HOMES))


def get_importer(name: str) -> Importer:
    """The importer of a format.

    Raises
    ------
    SettingsError
        If there is none of that name.
    """
    if name not in _HOMES:
        raise SettingsError(f"Unknown log format {name!r}.{suggestion(name, _HOMES)}")
    module, _, attribute = _HOMES[name].partition(":")
    importer: Importer = getattr(import_module(module), attribute)()
    return importer


def recognised(lines: Sequence[str], path: str) -> Importer:
    """The importer of a log that begins with these lines.

    Raises
    ------
    LogError
        If no format is recognised.
    """
    for name in _HOMES:
        importer = get_importer(name)
        if importer.recognises(lines):
            return importer
    shown = next((line for line in lines if line.strip()), "")[:80]
    known = ", ".join(importer_names())
    raise LogError(f"{path}: Expected a log of a format that is known ({known}), got one that begins with {shown!r}.")
