"""What was found once is not found again: inputs that once broke a command, each with what is said of it now."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.fuzzing.world import CORPUS, corpus, files_of, write_files
from tests.tiny import contents

ENTRIES = corpus()


@pytest.mark.long
@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["about"] for entry in ENTRIES])
def test_corpus(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any]) -> None:
    """Status and message are those of the table, and a refusal leaves nothing behind."""
    words = str(entry["command"]).replace("\\uDCFF", "\udcff").split()  # TOML holds no lone surrogate
    for path in list(here.iterdir()):
        path.unlink()
    write_files(here, files_of(entry))
    for name, value in entry.get("environment", {}).items():
        monkeypatch.setenv(name, value)
    before = {} if "hole" in str(entry) else contents(here)
    done = call(*words)
    assert done.status == entry["status"], done
    assert re.search(str(entry["says"]), done.err), done.err
    if done.status == 2 and before:
        assert contents(here) == before


def test_all_files_are_listed():
    """Each file of the corpus has an entry in its table."""
    listed = {content.partition(":")[2] for entry in ENTRIES for content in entry.get("files", {}).values()} - {""}
    assert listed == set(os.listdir(CORPUS / "files"))
