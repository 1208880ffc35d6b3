"""What this package registers itself: tests must not depend on what else happens to be installed."""

from importlib.metadata import distribution


def shipped(group: str) -> list[str]:
    """Names of our own entry points in a group, sorted."""
    return sorted(point.name for point in distribution("bftrainer").entry_points if point.group == group)
