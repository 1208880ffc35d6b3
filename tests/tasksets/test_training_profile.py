"""Profiles from TOML."""

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


def test_toml(tmp_path):
    """The fields are those of a profile; whole numbers will do for times."""
    (tmp_path / "p.toml").write_text(TOML)
    assert read_training_profile(tmp_path / "p.toml") == TrainingProfile(
        (16, 32), (18.0, 11.5), 88.0, 89.0, 47.0, 1024.0
    )


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


@pytest.mark.parametrize(("name", "said"), [("absent.toml", "No such file"), (".", "directory")])
def test_missing_profile(tmp_path, name, said):
    """What is no file is named."""
    with pytest.raises(InvalidTaskError, match=rf"{tmp_path}.*: .*{said}"):
        read_training_profile(tmp_path / name)
