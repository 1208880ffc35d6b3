"""Runs whose node log comes from the cache: the same as those that parse it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bftrainer.campaigns.sweep_file import read_sweep
from bftrainer.errors import InputError
from bftrainer.files.manifest import MANIFEST
from bftrainer.report.glossary import GLOSSARY
from bftrainer.runs import ReplayConfig, load_inputs, run_replay
from tests.tiny import spawn, write_inputs

WALL_S = ("backend_s", "load_s", "replay_s", "baseline_s", "wall_s", "solve_wall_share")
WALL = {"decisions.parquet", "summary.json", MANIFEST}  # these hold wall-clock times
REPLAY = ("bftrainer-replay", "-ndmap", "evt.pkl", "-bdfn", "Jbnd.pkl", "-scfn", "JNPs.pkl", "--solver", "dp")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with inputs, and an empty cache beside."""
    (tmp_path / "here").mkdir()
    write_inputs(tmp_path / "here")
    monkeypatch.setenv("BFTRAINER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "here"


def results(run: Path) -> dict[str, Any]:
    """What a run wrote, without wall-clock times and the command."""
    found: dict[str, Any] = {path.name: path.read_bytes() for path in run.iterdir() if path.name not in WALL}
    summary = json.loads((run / "summary.json").read_text())
    timed = {key for key, term in GLOSSARY.items() if term.unit == "wall_s"}
    return found | {key: value for key, value in summary.items() if key not in timed | {"command", "solvers", *WALL_S}}


@pytest.mark.long
def test_results_do_not_depend_on_the_cache(here: Path, tmp_path: Path) -> None:
    """Parsed, kept and found: three runs write the same, and --no-cache neither keeps nor finds anything."""
    for name, options in (("parsed", ["--no-cache"]), ("kept", []), ("found", [])):
        done = spawn(*REPLAY, *options, "--output-dir", name, cwd=here)
        assert (done.status, done.err) == (0, "")
        assert len(list(tmp_path.glob("cache/*"))) == (name != "parsed")
    parsed = results(here / "parsed")
    assert results(here / "kept") == parsed
    assert results(here / "found") == parsed
    assert "cache" not in parsed["settings"]


def test_a_cache_that_cannot_be_written_is_one_line(here: Path, tmp_path: Path) -> None:
    """The run is not affected, and says why the log is not kept."""
    (tmp_path / "cache").touch()
    done = spawn(*REPLAY, "--output-dir", "run", cwd=here)
    assert done.status == 0
    (line,) = done.err.splitlines()
    assert "not kept in the cache" in line
    assert "Errno" not in line
    assert (here / "run" / "summary.json").is_file()


def test_an_entry_that_changes_in_use_is_refused(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose log was written to while it was mapped has no result; one whose entry was replaced has."""
    monkeypatch.chdir(here)
    config = ReplayConfig(node_log="evt.pkl", tasks="tasks.toml", solver="dp", baseline=False)
    expected = run_replay(config=config).summary()["work_done"]
    inputs = load_inputs(config)
    (entry,) = tmp_path.glob("cache/*")
    content = entry.read_bytes()
    entry.write_bytes(content)
    with pytest.raises(InputError, match=rf"^{entry}: Expected an entry of the cache that stays as it is"):
        run_replay(inputs=inputs)
    inputs = load_inputs(config)
    entry.unlink()
    entry.write_bytes(content)
    assert run_replay(inputs=inputs).summary()["work_done"] == expected


def test_an_entry_that_becomes_senseless_is_refused(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets and nodes that are out of range after loading are that one line too, and no crash."""
    monkeypatch.chdir(here)
    config = ReplayConfig(node_log="evt.pkl", tasks="tasks.toml", solver="dp", baseline=False)
    run_replay(config=config)
    (entry,) = tmp_path.glob("cache/*")
    content = entry.read_bytes()
    for octet in (b"\x7f", b"\xfd"):
        inputs = load_inputs(config)
        with entry.open("r+b") as stream:
            stream.seek(len(content) // 2)
            stream.write(octet * (len(content) - len(content) // 2))
        with pytest.raises(InputError, match=rf"^{entry}: Expected an entry of the cache that stays as it is"):
            run_replay(inputs=inputs)
        with entry.open("r+b") as stream:
            stream.write(content)


def test_sweeps_with_and_without_cache_share_runs(here: Path) -> None:
    """A point's key is that of its replay, however its log is read."""
    keys = []
    for cache in ("true", "false"):
        file = here / "sweep.toml"
        file.write_text(f'schema = 1\n[base]\nnode_log = "evt.pkl"\ntasks = "tasks.toml"\ncache = {cache}\n')
        (point,) = read_sweep(file).resolved()
        assert point.config().cache == (cache == "true")
        keys.append(point.key)
    assert keys[0] == keys[1]
