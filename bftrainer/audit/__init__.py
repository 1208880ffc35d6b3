"""Independent audit of finished runs: read, solve and book them again, by code that shares none with the package.

Nothing here imports another part of `bftrainer`, and nothing imports it but its command.
"""

from bftrainer.audit.parts import Part, UnusableError
from bftrainer.audit.run_audit import Audit, audit

__all__ = ["Audit", "Part", "UnusableError", "audit"]
