"""Commands: parse, call, print. Each is imported when it is called, so that help is fast."""

from bftrainer.cli.group import main, replay_main

__all__ = ["main", "replay_main"]
