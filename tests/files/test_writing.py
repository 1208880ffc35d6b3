import resource
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest

from bftrainer.errors import OutputError
from bftrainer.files.writing import replacing
from bftrainer.model import NodeLog
from bftrainer.nodelogs import write_node_log


def test_failure_leaves_the_earlier_file(tmp_path):
    """If writing fails half-way the earlier file stays as it was, and nothing is left over."""
    path = tmp_path / "x.csv"
    path.write_text("earlier")
    with pytest.raises(TypeError), replacing(path) as stream:
        stream.writelines([b"half", None])
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def full_disk():
    """Files cannot grow beyond 64 KiB."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("full_disk")
def test_full_disk(tmp_path):
    """A disk that fills up is one line, and the earlier file stays as it was."""
    path = tmp_path / "x.csv"
    path.write_text("earlier")
    with pytest.raises(OutputError, match=r"x\.csv: cannot be written \(File too large\)\."), replacing(path) as stream:
        stream.write(bytes(1 << 20))
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("first", ["log.csv", "log.csv.gz"])
@pytest.mark.usefixtures("full_disk")
def test_full_disk_leaves_an_earlier_pair(tmp_path, first):
    """A node log that no longer fits spoils neither the table nor the metadata of the one before it."""
    small = NodeLog(("n1",), 0, 10, np.array([0]), np.array([0], np.int32), np.array([True]))
    write_node_log(tmp_path / first, small)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    names = tuple(f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}" for number in range(3000))
    times, nodes = np.arange(3000), np.arange(3000, dtype=np.int32)
    large = NodeLog(names, 0, 3000, times, nodes, np.ones(3000, dtype=np.bool_))
    with pytest.raises(OutputError, match="cannot be written"):
        write_node_log(tmp_path / first, large)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_permissions_are_the_usual_ones(tmp_path):
    """A file written is as readable to others as one opened in the usual way."""
    (tmp_path / "usual").touch()
    with replacing(tmp_path / "x") as stream:
        stream.write(b"x")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_import_is_light():
    """Importing the package loads neither pandas nor pyarrow nor pydantic; reading a pickle does not either."""
    heavy = {"pandas", "pyarrow", "pydantic", "tomli_w"}
    code = f"import sys, bftrainer.nodelogs.convert; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
