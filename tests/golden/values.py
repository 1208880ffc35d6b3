"""Values kept as JSON, and how those of today are compared with them."""

import json
import math
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
TOLERANCE = 1e-12
"""Relative, of floats alone: NumPy adds up in another order from one version, or processor, to the next."""


def load(name: str) -> dict[str, Any]:
    """The kept values of a file; none if there is no file."""
    path = FOLDER / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def save(name: str, values: dict[str, Any]) -> None:
    """Write values, one a line, and lists of numbers on as many lines as they take."""
    text = json.dumps(values, indent=1, sort_keys=True)
    text = re.sub(r"\[[^\[\]{}]*\]", lambda some: "\n".join(textwrap.wrap(" ".join(some[0].split()), 100)), text)
    assert json.loads(text) == values
    (FOLDER / name).write_text(text + "\n", encoding="utf-8")


def differences(kept: Any, now: Any, place: str = "") -> Iterator[str]:
    """What differs, a line each: counts, texts and lists of integers exactly, floats by the tolerance."""
    if isinstance(kept, dict) and isinstance(now, dict):
        for key in sorted(kept.keys() | now.keys()):
            yield from differences(kept.get(key, "absent"), now.get(key, "absent"), f"{place}/{key}" if place else key)
    elif isinstance(kept, list) and isinstance(now, list) and len(kept) == len(now):
        for number, (old, new) in enumerate(zip(kept, now, strict=True)):
            yield from differences(old, new, f"{place}[{number}]")
    elif not _same(kept, now):
        yield f"{place}: {_brief(kept)} -> {_brief(now)}"


def _same(kept: Any, now: Any) -> bool:
    if isinstance(kept, float) and isinstance(now, float):
        return math.isclose(kept, now, rel_tol=TOLERANCE, abs_tol=0.0)
    return type(kept) is type(now) and kept == now


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
