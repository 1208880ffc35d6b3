"""Scaling curves from measured throughput, and profiles of training runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import InvalidTaskError
from bftrainer.model import ScalingCurve
from bftrainer.tasksets.measurements import TrainingProfile, read_throughput_csv, read_training_profile

PROFILE = TrainingProfile((16, 32, 64), (20.0, 12.0, 8.0), 90.0, 80.0)
TOML = """\
schema = 1
world_size = [16, 32]
iteration_s = [18, 11.5]
reconfiguration_s = 88.0
checkpoint_s = 89.0
load_s = 47.0
samples_per_iteration = 1024
"""


def test_repeated_measurements_are_averaged(tmp_path):
    """The curve goes through the means, in order of node count, with 0 added, however large; columns in any order."""
    (tmp_path / "t.csv").write_text("throughput,nodes\n30,4\n10,1\n34,4\n8,1\n0,0\n\n")
    assert read_throughput_csv(tmp_path / "t.csv") == ScalingCurve((0, 1, 4), (0.0, 9.0, 32.0))
    (tmp_path / "t.csv").write_text("nodes,throughput\n1,1e308\n1,1e308\n")
    assert read_throughput_csv(tmp_path / "t.csv").at(1) == 1e308


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes\n1\n", ":1: Expected columns nodes, throughput, each once, got nodes."),
        ("nodes,throughput\n0,0\n", ": Expected at least one measurement on one node or more, got none."),
        ("nodes,throughput\n1,2\n1.5,3\n", ":3: Expected nodes to be a whole number from 0 to 10,000,000, got '1.5'."),
        ("nodes,throughput\n1,fast\n", ":2: Expected throughput to be a finite number, got 'fast'."),
        ("nodes,throughput\n1,nan\n", ":2: Expected throughput to be a finite number, got 'nan'."),
        ("nodes,throughput\n1,-2\n", ":2: Expected throughput above 0, on 0 nodes 0, got -2 on 1."),
        ("nodes,throughput\n-1,2\n", ":2: Expected nodes to be a whole number from 0 to 10,000,000, got '-1'."),
        ("nodes,throughput\n1,0\n", ":2: Expected throughput above 0, on 0 nodes 0, got 0 on 1."),
        ("nodes,throughput\n1\n", ":2: Expected 2 values, got 1."),
    ],
)
def test_bad_tables(tmp_path, text, message):
    """A bad row is refused in one line that names file and line."""
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InvalidTaskError) as caught:
        read_throughput_csv(tmp_path / "t.csv")
    assert str(caught.value).endswith(f"t.csv{message}")


def test_times_of_iterations():
    """As measured at profiled sizes; linear in one over the size between them; beyond, efficiency is the nearest's."""
    assert [PROFILE.iteration_time_s(size) for size in (16, 32, 64)] == [20.0, 12.0, 8.0]
    # 1/48 lies two thirds of the way from 1/32 to 1/64; node-seconds an iteration are 320 below 16, and 512 above 64.
    assert [PROFILE.iteration_time_s(size) for size in (48, 8, 128)] == pytest.approx([12.0 - 4.0 * 2 / 3, 40.0, 4.0])


@given(st.integers(1, 5000))
def test_every_size_has_a_time(size):
    """No world size is out of reach, and more nodes are never slower for a profile that improves."""
    assert 0 < PROFILE.iteration_time_s(size + 1) <= PROFILE.iteration_time_s(size)


def test_profiles_in_toml(tmp_path):
    """The fields are those of a profile; whole numbers will do for times."""
    (tmp_path / "p.toml").write_text(TOML)
    profile = TrainingProfile((16, 32), (18.0, 11.5), 88.0, 89.0, 47.0, 1024.0)
    assert read_training_profile(tmp_path / "p.toml") == profile


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
        ("88.0", "-1.0", "Expected 0 <= reconfiguration_s < 1e9, got -1.0"),
        ("[16, 32]", "[16, 32.5]", "Expected world_size to be whole, got 32.5"),
        ("11.5", f"1{400 * '0'}", "iteration_s at world size 32 < 1e9, got inf"),
        ("11.5", "0.0", "1e-06 <= iteration_s at world size 32 < 1e9, got 0.0"),
        ("11.5", "nan", "got nan"),
        ("32]", f"1{400 * '0'}]", "Expected world sizes that increase from 1 or more to at most 1e+09"),
        ("[16, 32]", "[16, 16]", "Expected world sizes that increase"),
        ("[16, 32]", "[0, 32]", "got (0, 32)"),
        ("[16, 32]", "[]", "Expected iteration times for at least one world size, got none"),
        ("[18, 11.5]", "[18]", "Expected as many iteration times as world sizes, got 1 for 2"),
        ("[18, 11.5]", "11.5", "Expected iteration_s as a list of numbers, got 11.5"),
        ("89.0", f"1{5000 * '0'}", "Expected TOML, got something else (Exceeds the limit"),
        ("89.0", 5000 * "[" + 5000 * "]", "Expected TOML of at most 100 levels, got more"),
        ("1024", "0", "Expected 0 < samples_per_iteration <= 1e15"),
    ],
)
def test_bad_profiles(tmp_path, old, new, said):
    """A fault is told with file and key, as is a file that is not there."""
    (tmp_path / "p.toml").write_text(TOML.replace(old, new, 1))
    for name, message in (("p.toml", said), ("absent.toml", "No such file"), (".", "directory")):
        with pytest.raises(InvalidTaskError) as caught:
            read_training_profile(tmp_path / name)
        assert str(caught.value).startswith(str(tmp_path / name))
        assert message in str(caught.value)
