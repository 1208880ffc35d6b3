"""What counts as a difference, and what the command says of one."""

import json

from tests.golden import values
from tests.golden.__main__ import compare_files, main
from tests.golden.values import differences

KEPT = {"events": 5, "work": 1.0, "times": [1, None], "ledger": {"useful": 0.1}, "by": "demand"}


def test_differences():
    """Counts and texts are compared exactly, floats to 12 digits; what differs is named with both values."""
    for change, told in (
        ({"work": 1.0 + 4e-13}, []),  # another order of adding up
        ({"work": 1.0 + 4e-12}, ["work: 1.0 -> 1.000000000004"]),
        ({"work": 1}, ["work: 1.0 -> 1"]),  # a number has become a count
        ({"times": [2, None]}, ["times[0]: 1 -> 2"]),
        ({"ledger": {}}, ['ledger/useful: 0.1 -> "absent"']),
        ({"by": "pool", "new": True}, ['by: "demand" -> "pool"', 'new: "absent" -> true']),
    ):
        assert list(differences(KEPT, KEPT | change)) == told


def test_changes_are_printed_and_written(tmp_path, monkeypatch, capsys):
    """The command tells each change, old and new; only without --check does it write them."""
    monkeypatch.setattr(values, "FOLDER", tmp_path)
    monkeypatch.setattr("tests.golden.__main__.measure", lambda *_: {"nodes": 4})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # main has its own, which is gone afterwards
    values.save("imports.json", {"swf": {"nodes": 3}})
    monkeypatch.setattr("sys.argv", ["tests.golden", "--check", "imports.json"])
    assert main() == 1
    assert "swf/nodes: 3 -> 4" in capsys.readouterr().out
    assert json.loads((tmp_path / "imports.json").read_text()) == {"swf": {"nodes": 3}}
    assert compare_files(["imports.json"], write=True) > 0
    assert compare_files(["imports.json"], write=False) == 0
