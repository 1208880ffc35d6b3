"""Commands: parse, call, print. Each is imported when it is called, so that help is fast."""

from bftrainer.cli.group import main

__all__ = ["main", "replay_main"]


def replay_main() -> None:
    """Entry point of `bftrainer-replay`, the same as `bftrainer replay`."""
    from bftrainer.cli.group import run_program
    from bftrainer.cli.replay import replay

    run_program(replay, "bftrainer-replay")
