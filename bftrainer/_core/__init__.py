"""The compiled core: decisions and exact pruning of tasks whose options have values.

It is optional: where it could not be built, or the environment variable ``BFTRAINER_CORE`` is 0, `core` is None and
NumPy and Python do the same, to the last bit, more slowly. `why_not` then says why.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

__all__ = ["core", "why_not"]


def _load_core() -> tuple[ModuleType | None, str]:
    if os.environ.get("BFTRAINER_CORE") == "0":
        return None, "turned off by BFTRAINER_CORE=0"
    try:
        return import_module("bftrainer._core._core"), ""
    except ImportError as error:
        return None, f"no compiled extension: {error}"


core, why_not = _load_core()
