"""Former names of packages, which can still be imported, with a warning that gives the new name."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _Renamed:
    """Finder of modules under their package's former name: the same objects, not copies."""

    def __init__(self, former: str, current: str) -> None:
        self._former, self._current = former, current

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        """Spec of a module under the former name, if it is one."""
        if not name.startswith(f"{self._former}."):
            return None
        current = find_spec(self._current + name.removeprefix(self._former))
        return None if current is None else ModuleSpec(name, self, origin=current.origin)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself, imported under its present name."""
        module = import_module(self._current + spec.name.removeprefix(self._former))
        spec.loader_state = module.__spec__
        return module

    def get_code(self, name: str) -> Any:
        """Code for ``python -m``, which older job files and journals may use."""
        spec = find_spec(self._current + name.removeprefix(self._former))
        assert spec is not None
        assert isinstance(spec.loader, InspectLoader)
        return spec.loader.get_code(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec; its code has run already."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def stand_for(former: str, current: str) -> None:
    """Make a package importable by its former name, modules included, with a warning.

    Parameters
    ----------
    former : str
        Former name: the package that calls this.
    current : str
        Present name.
    """
    warnings.warn(f"{former} is now {current}.", DeprecationWarning, stacklevel=3)
    sys.meta_path.insert(0, _Renamed(former, current))
    sys.modules[former] = import_module(current)
