"""Profiles from TOML and from raw measurements."""

from __future__ import annotations

import pytest

from bftrainer.errors import InvalidTaskError
from bftrainer.tasksets.measurements import TrainingProfile, read_training_profile

TOML = """\
schema = 1
world_size = [16, 32]
iteration_s = [18, 11.5]
reconfiguration_s = 88.0
checkpoint_s = 89.0
load_s = 47.0
samples_per_iteration = 1024
"""
LOOP = "ws,step,loop start,loop end,train time,start chkpt thread,total loop time\n"
RAW = {
    "reconfig.csv": "ws,start,end,elapsed\n16,0,500,500.0\n16,0,80,80.0\n32,0,90,90.0\n",
    "loop_times_0.csv": LOOP + "16,1,0,18,17.5,0.5,18.0\n16,2,18,38,19.5,0.5,20.0\n",
    "loop_times_1.csv": LOOP + "32,1,0,11,10.5,0.5,11.0\n",
    "async-checkpoint_0.csv": "elapsed\n88.0\n90.0\n",
    "load_times_0.csv": "ws,step,elapsed\n16,1,46.0\n32,1,48.0\n",
}


@pytest.fixture
def raw(tmp_path):
    """A directory of raw measurements."""
    for name, text in RAW.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_toml(tmp_path):
    """The fields are those of a profile; whole numbers will do for times."""
    (tmp_path / "p.toml").write_text(TOML)
    assert read_training_profile(tmp_path / "p.toml") == TrainingProfile(
        (16, 32), (18.0, 11.5), 88.0, 89.0, 47.0, 1024.0
    )


def test_raw_measurements(raw):
    """Means over all files; iterations per world size; the launch is no reconfiguration."""
    assert read_training_profile(raw) == TrainingProfile((16, 32), (18.5, 10.5), 85.0, 89.0, 47.0)


def test_raw_measurements_without_headers(raw):
    """Files of numbers alone have the columns in their order: the same profile, down to the launch."""
    expected = read_training_profile(raw)
    for name, text in RAW.items():
        (raw / name).write_text(text.split("\n", 1)[1])
    assert read_training_profile(raw) == expected


def test_times_of_day_are_no_header(raw):
    """Start and end may be dates: what tells a row from a header is the column that counts."""
    (raw / "reconfig.csv").write_text("16,2021-01-01,2021-01-01,500.0\n32,2021-01-01,2021-01-02,85.0\n")
    assert read_training_profile(raw).reconfiguration_s == 85.0


def test_loads_are_optional(raw):
    """Who never loads a checkpoint has no times of it."""
    (raw / "load_times_0.csv").unlink()
    assert read_training_profile(raw).load_s == 0.0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("schema = 1", "schema = 2", "Expected schema = 1, got 2"),
        ("schema = 1", "schema = = 1", "Expected TOML"),
        ("checkpoint_s", "checkpoints_s", "Unknown key 'checkpoints_s'. Did you mean 'checkpoint_s'?"),
        ("checkpoint_s = 89.0\n", "", "Missing key 'checkpoint_s'"),
        ("89.0", '"89"', "Expected checkpoint_s to be a number, got '89'"),
        ("89.0", "true", "Expected checkpoint_s to be a number, got True"),
        ("89.0", "-1.0", "Expected 0 <= checkpoint_s < 1e9, got -1.0"),
        ("[16, 32]", "[16, 32.5]", "Expected world_size to be whole, got 32.5"),
        ("89.0", f"1{400 * '0'}", "Expected 0 <= checkpoint_s < 1e9, got inf"),
        ("11.5", f"1{400 * '0'}", "< 1e9, got inf"),
        ("32]", f"1{400 * '0'}]", "Expected world sizes that increase from 1 or more to at most 1e+09"),
        ("89.0", f"1{5000 * '0'}", "Expected TOML, got something else (Exceeds the limit"),
        ("89.0", 5000 * "[" + 5000 * "]", "Expected TOML of at most 100 levels, got more"),
        ("[16, 32]", "[]", "Expected iteration times for at least one world size, got none"),
        ("[16, 32]", "[0, 32]", "got (0, 32)"),
        ("[18, 11.5]", "[18]", "Expected as many iteration times as world sizes"),
        ("[18, 11.5]", "11.5", "Expected iteration_s as a list of numbers, got 11.5"),
        ("1024", "0", "Expected 0 < samples_per_iteration <= 1e15"),
    ],
)
def test_bad_toml(tmp_path, old, new, said):
    """A fault is told with file and key."""
    (tmp_path / "p.toml").write_text(TOML.replace(old, new, 1))
    with pytest.raises(InvalidTaskError) as caught:
        read_training_profile(tmp_path / "p.toml")
    assert str(caught.value).startswith(f"{tmp_path / 'p.toml'}: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("reconfig.csv", None, "Expected reconfig.csv there, found none"),
        (
            "reconfig.csv",
            "ws,start,end,elapsed\n16,0,5,5.0\n",
            "reconfig.csv: Expected a reconfiguration after the launch",
        ),
        ("reconfig.csv", "ws,start,end\n1,2,3\n", "reconfig.csv:1: Expected columns elapsed, each once"),
        (
            "loop_times_0.csv",
            LOOP + "16,1,0,18,x,0,18\n",
            "loop_times_0.csv:2: Expected train time to be a number",
        ),
        ("loop_times_0.csv", LOOP + "0,1,0,18,17,0,18\n", "loop_times_0.csv:2: Expected ws >= 1, got 0"),
        ("loop_times_0.csv", LOOP + "16,1,0,18\n", "loop_times_0.csv:2: Expected 7 values, got 4"),
        (
            "loop_times_0.csv",
            "16,1,0,18,17.5,0.5\n",
            "loop_times_0.csv:1: Expected columns ws, train time, each once",
        ),
        ("loop_times_0.csv", "16,1,0,18,17,0,18\n16,x,0,18,-1,0,18\n", "loop_times_0.csv:2: Expected train time >= 0"),
        ("async-checkpoint_0.csv", "elapsed\n", "async-checkpoint_0.csv: Expected measurements, got none"),
        ("async-checkpoint_0.csv", "elapsed\n-2\n", "async-checkpoint_0.csv:2: Expected elapsed >= 0, got -2"),
        ("async-checkpoint_0.csv", "elapsed\ninf\n", "async-checkpoint_0.csv:2: Expected elapsed to be finite"),
    ],
)
def test_bad_measurements(raw, name, text, said):
    """A fault is told with file and line."""
    if text is None:
        (raw / name).unlink()
    else:
        (raw / name).write_text(text)
    with pytest.raises(InvalidTaskError) as caught:
        read_training_profile(raw)
    assert said in str(caught.value)


def test_missing_profile(tmp_path):
    """A file that is not there is named."""
    with pytest.raises(InvalidTaskError, match=r"absent\.toml: No such file"):
        read_training_profile(tmp_path / "absent.toml")
