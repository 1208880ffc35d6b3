"""All importers by name; each is imported when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from bftrainer.errors import LogError, SettingsError, suggestion

if TYPE_CHECKING:
    from bftrainer.schedulers.reading import Importer

__all__ = ["get_importer", "importer_names", "recognised"]

# In the order in which they are asked whether a log is theirs: Cobalt's lines are also of PBS's form.
_HOMES = {
    "slurm": "bftrainer.schedulers.formats.slurm:SlurmImporter",
    "swf": "bftrainer.schedulers.formats.swf:SwfImporter",
    "cobalt": "bftrainer.schedulers.formats.cobalt:CobaltImporter",
    "pbs": "bftrainer.schedulers.formats.pbs:PbsImporter",
    "lsf": "bftrainer.schedulers.formats.lsf:LsfImporter",
    "alcf": "bftrainer.schedulers.formats.alcf:AlcfImporter",
    "flux": "bftrainer.schedulers.formats.flux:FluxImporter",
    "spot": "bftrainer.schedulers.formats.spot:SpotImporter",
    "counts": "bftrainer.schedulers.formats.counts:CountsImporter",
    "batsim": "bftrainer.schedulers.formats.batsim:BatsimImporter",
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
