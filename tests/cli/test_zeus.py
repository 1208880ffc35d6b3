"""`bftrainer zeus`: help, and what it does without files and on published ones."""

from __future__ import annotations

import pytest

from tests.cli.conftest import assert_matches
from tests.recurring import cells
from tests.tiny import contents


@pytest.mark.parametrize(
    "words",
    [
        ("simulate",),
        ("simulate", "--job", "synth-text,transformer,adamw", "--seeds", "2"),
        ("traces",),
        ("compare", "--seeds", "2", "--recurrences", "20"),
        ("groups", "--dataset", "synth-text"),
    ],
    ids=" ".join,
)
def test_everything_runs_without_files(zeus, here, words):
    """Each command has defaults that work, on embedded traces, and prints the same each time; nothing is written."""
    before = contents(here)
    done = zeus(*words, sample=True)
    assert (done.status, done.err) == (0, "")
    assert zeus(*words, sample=True).out == done.out
    assert contents(here) == before


def test_the_published_example(published, call):
    """The command of a Zeus user on the published traces tunes as the published simulator does."""
    traces = published.parent / "zeus"
    files = ("--train", str(traces / "summary_train.csv"), "--power", str(traces / "summary_power_v100.csv"))
    words = "--target 0.65 --max-epochs 100 --default-bs 256 --recurrences 100 --eta 0.5 --beta 2 --seed 1"
    done = call("zeus", "simulate", *files, "--job", "imagenet,resnet50,adadelta", *words.split())
    assert (done.status, done.err) == (0, "")
    rows = cells(done.out.partition("\n\n")[0])[2:-1]
    assert [row[2:4] for row in rows[:5]] == [
        ["256", "175*"], ["192", "175*"], ["128", "175*"], ["64", "175*"], ["360", "175*"],
    ]  # fmt: skip
    assert_matches(r"\noptimum +360 at 175 W\n", done.out)
