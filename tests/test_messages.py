"""Messages are one line that a terminal shows as it is, whatever files hold and are called."""

import copy
import pickle

import pytest

from bftrainer.errors import InputError, TuningInputError
from bftrainer.tasksets import read_task_set

CLEAR = "\x1b[2J"


@pytest.mark.parametrize("kind", [InputError, TuningInputError])
def test_errors_hold_no_control_characters(kind):
    """Escape sequences, line ends and bytes that are no text are spelt out; letters of all languages stay."""
    error = kind(f"Jülich\n{CLEAR}\udcff\u202e 節点.csv:3: Expected \tx.")
    said = "Jülich\\n\\x1b[2J\\udcff\\u202e 節点.csv:3: Expected \\tx."
    assert str(error) == said
    assert f"{error}" == said
    assert str(copy.copy(error)) == str(pickle.loads(pickle.dumps(error))) == said


@pytest.mark.parametrize(("place", "got"), [(f"/{'deep/' * 200}log.csv:812", "x"), ("/log.csv:812", "9" * 5000)])
def test_long_messages_keep_the_file_and_the_reason(place, got):
    """Of a message over 500 characters the middle goes: of the place, or of what was found there."""
    said = str(InputError(f"{place}: Expected idle to be 0 or 1, got {got}. Did you mean 1?"))
    assert len(said) == 500
    assert "/log.csv:812: Expected idle to be 0 or 1, got " in said
    assert said.endswith(f"{got[:1]}. Did you mean 1?")


def test_values_from_files(tmp_path):
    """A name in a task set that would clear the screen, and one that fills it."""
    path = tmp_path / "tasks.toml"
    for name in ("\\u001b[2J", "x" * 100_000):
        path.write_text(f'schema = 1\n[[task]]\nname = "{name}"\nmin_nodes = 9\nmax_nodes = 1\nwork = 1.0\n')
        with pytest.raises(InputError) as caught:
            read_task_set(path)
        said = str(caught.value)
        assert said.isprintable()
        assert len(said) <= 500
        assert "tasks.toml, task " in said
        assert said.endswith("Expected min_nodes <= max_nodes, got 9 > 1.")
