"""What would I get from my idle nodes, and with which settings?

bftrainer replays node idle and preempt events from scheduler logs, decides at each event which malleable
training task runs on how many nodes, and tells throughput, completion times, energy and lost work.
"""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__"]
