"""The compiled core: decisions and exact pruning of tasks whose options have values.

It is optional: where it could not be built, or the environment variable ``BFTRAINER_CORE`` is 0, `core` is None and
NumPy and Python do the same, to the last bit, more slowly. `why_not` then says why.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

__all__ = ["core", "why_not"]

core: ModuleType | None = None
why_not = "turned off by BFTRAINER_CORE=0"
if os.environ.get("BFTRAINER_CORE") != "0":
    try:
        core, why_not = import_module("bftrainer._core._core"), ""
    except ImportError as error:
        why_not = f"no compiled extension: {error}"
