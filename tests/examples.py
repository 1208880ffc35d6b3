"""How many inputs a claim about all of them is tried on."""

from hypothesis import settings

FEWEST = 5


def examples(count: int) -> settings:
    """As many inputs, where the others have 100: fewer of both without `scripts/test --many` (`tests/conftest.py`)."""
    return settings(max_examples=max(min(FEWEST, count), count * settings.default.max_examples // 100))
