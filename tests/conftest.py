"""Where the published data are, if they are here at all."""

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from benchmarks.published import shared_data

# How long an example takes says how busy the machine is, not whether the claim holds. Other examples are drawn each
# time, so that few of them make many in the end; `scripts/test --many` tries as many as Hypothesis does by default.
settings.register_profile("few", deadline=None, max_examples=30)
settings.register_profile("many", settings.get_profile("few"), max_examples=100)
settings.load_profile("few")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would each process that they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# As one that starts them to outlive it has them ignore its end.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have each of two workers begin with slow tests, which get more time, and end with quick ones.

    `--dist worksteal` gives each of them one half, in this order; then neither waits for the other at the end. Of slow
    tests no coverage is measured: their whole replays would take half as long again.
    """
    slow = [item for item in items if item.get_closest_marker("slow")]
    for item in slow:
        item.add_marker("no_cover")
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))
    quick = [item for item in items if not item.get_closest_marker("slow")]
    middle, half = len(slow) // 2, len(items) // 2 - len(slow) // 2
    items[:] = [*slow[:middle], *quick[:half], *slow[middle:], *quick[half:]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Where no coverage is measured, measure none of the processes that the test starts either."""
    config = os.environ.pop("COVERAGE_PROCESS_CONFIG", None) if item.get_closest_marker("no_cover") else None
    try:
        return (yield)
    finally:
        if config is not None:
            os.environ["COVERAGE_PROCESS_CONFIG"] = config


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep keys out of the user's directories, also in processes that tests start."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def published() -> Path:
    """Folder of the data sets published with the BFTrainer log replayer."""
    folder = shared_data() / "bftrainer"
    if not folder.is_dir():
        pytest.skip(f"no published data at {folder} (set BFTRAINER_SHARED_DATA)")
    return folder


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Small frames pickled by several versions of pandas, the plain log in all protocols."""
    return Path(__file__).parent / "legacy" / "fixtures"
