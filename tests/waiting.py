"""Waiting for facts: nothing is asserted of how long they take, however busy the machine is."""

import time
from pathlib import Path

# Longer than anything here takes on the busiest machine: only what never comes true meets it.
LONGEST_S = 120.0


def until(true, within_s=LONGEST_S):
    """Ask again and again, until it is so; what was true last is returned."""
    end = time.monotonic() + within_s
    while not (found := true()):
        assert time.monotonic() < end, f"Expected {true} within {within_s} s."
        time.sleep(0.02)
    return found


def alive(pid):
    """Whether a process runs; one that has ended may still be listed, without a parent that asks for its status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
