"""Logs of the server: one JSON object a line, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

__all__ = ["LEVEL_VARIABLE", "JsonFormatter", "configure"]

# Where workers find the level.
LEVEL_VARIABLE = "BFTRAINER_BSO_LOG_LEVEL"


class JsonFormatter(logging.Formatter):
    """Records as JSON objects; fields of their own go beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {"time": moment, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def configure(level: str | None = None) -> None:
    """Have this process's server log to standard error.

    Parameters
    ----------
    level : str, optional
        Least level that is logged; that in the environment by default.
    """
    import os

    chosen = (level or os.environ.get(LEVEL_VARIABLE, "info")).upper()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("bftrainer", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler] if name != "uvicorn.error" else []
        logger.propagate = name == "uvicorn.error"
        logger.setLevel(chosen)
