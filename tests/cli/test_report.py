"""`bftrainer compare`, `report` and `plot`: what they print and write, and what they refuse."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import check_refusal
from tests.finished import write_sample_run, write_tuned_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs that differ in Tfwd, and a tuned one."""
    folder = tmp_path_factory.mktemp("runs")
    write_sample_run(folder / "short")
    write_sample_run(folder / "long", forward_time_s=120.0)
    write_tuned_run(folder / "tuned")
    return folder


@pytest.fixture
def call(call, runs, monkeypatch):
    """Commands called where the runs are."""
    monkeypatch.chdir(runs)
    return call


def test_compare_few(call):
    """Settings that differ, then what says most, with its difference to the first run: of shares in points."""
    done = call("compare", "short", "long")
    assert done.status == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert ["forward", "time", "(s)", "10.0", "120.0"] in lines
    assert any(line[:1] == ["occupancy"] and line[-1] == "points)" for line in lines)
    assert any(line[:2] == ["mean", "wait"] and line[-1] in ("tasks", "%)") and "of" in line for line in lines)
    assert not any(line[:2] == ["worst", "gap"] for line in lines)
    assert "worst gap" in call("compare", "short", "long", "--all").out
    assert not any(line[:1] == ["solver"] for line in lines)


def test_compare_many(call):
    """A column a run, however many, with numbers where names are equal."""
    rows = [line.split("  ") for line in call("compare", *["short"] * 3, "long", "tuned").out.splitlines()]
    headings = [[word.strip() for word in row if word][1:] for row in rows if row[0] in ("setting", "figure")]
    assert headings == [["short (1)", "short (2)", "short (3)", "long", "tuned"]] * 2


def test_compare_as_data(call):
    """JSON and CSV have every figure; equal runs differ by nothing."""
    found = call("compare", "short", "long", "--json").json
    assert [run["name"] for run in found["runs"]] == ["short", "long"]
    assert found["settings"] == {"forward_time_s": [10.0, 120.0]}
    rows = list(csv.DictReader(io.StringIO(call("compare", "short", "long", "--csv").out)))
    assert {row["figure"] for row in rows} == set(found["figures"])
    occupancy = [row for row in rows if (row["run"], row["figure"]) == ("long", "occupancy")]
    assert float(occupancy[0]["value"]) == found["figures"]["occupancy"]["values"][1]


def test_compare_chosen_figures(call):
    """Only those asked for are shown, by their keys or the words of pages."""
    done = call("compare", "short", "long", "--metric", "Work done", "--metric", "rescales")
    assert [line.split()[0] for line in done.out.splitlines()[3:]] == ["figure", "work", "rescales"]


@pytest.mark.long
def test_report(call, tmp_path):
    """A page that names the run; an existing one stays unless --force."""
    page = tmp_path / "page.html"
    done = call("report", "short", "-o", page)
    assert (done.status, done.out) == (0, f"Page: {page}\n")
    text = page.read_text()
    assert "<title>short: training on idle nodes</title>" in text
    check_refusal(call("report", "short", "-o", page))
    other = call("report", "short", "-o", "b.txt")
    check_refusal(other)
    assert "Expected -o to name a page, such as b.html, got b.txt" in other.err
    assert call("report", "short", "long", "-o", page, "--force").status == 0
    assert "<title>short and long: training on idle nodes</title>" in page.read_text()


@pytest.mark.long
def test_who_decided_is_said_on_every_surface(call, tmp_path):
    """Terminal, page and comparison say how often the solver was asked; a run that did not note it is read as well."""
    done = call("replay", "--solver", "cbc", "--max-events", 60, "--no-baseline", "--output-dir", tmp_path / "cbc")
    summary = json.loads((tmp_path / "cbc" / "summary.json").read_text())
    share = f"cbc was asked in {100 * summary['backend_asked'] / summary['decisions']:.2f} % of decisions"
    assert share in done.out
    assert call("report", tmp_path / "cbc", "-o", tmp_path / "page.html").status == 0
    assert share[1:] in (tmp_path / "page.html").read_text()
    table = pq.read_table(tmp_path / "cbc" / "decisions.parquet")
    assert (
        table["model_columns"].null_count == table["backend_s"].null_count == table.num_rows - summary["backend_asked"]
    )
    older = shutil.copytree(tmp_path / "cbc", tmp_path / "older")
    new = ("decided_by", "model_rows", "model_columns", "backend_s", "backend_asked")
    pq.write_table(table.drop([name for name in new if name in table.column_names]), older / "decisions.parquet")
    kept = {key: value for key, value in summary.items() if key not in new}
    (older / "summary.json").write_text(json.dumps(kept))
    for words in (("report", older, "-o", tmp_path / "older.html"), ("compare", older, tmp_path / "cbc")):
        assert call(*words).status == 0, words
    assert "was asked in" not in (tmp_path / "older.html").read_text()


@pytest.mark.long
def test_a_replay_makes_its_page(call, tmp_path):
    """`--report` is `report` of the run that has just been made; what could not be written is refused before."""
    page = tmp_path / "page.html"
    world = ("replay", "--solver", "dp", "--max-events", 30, "--no-baseline")
    done = call(*world, "--output-dir", tmp_path / "run", "--report", page)
    assert done.status == 0
    assert done.out.endswith(f"Page: {page}\n")
    made = page.read_text()
    assert call("report", tmp_path / "run", "-o", tmp_path / "again.html").status == 0
    assert made == (tmp_path / "again.html").read_text()
    check_refusal(call(*world, "--output-dir", tmp_path / "other", "--report", page))
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("kind", ["pool", "gantt", "losses", "setting"])
def test_plot(call, tmp_path, kind):
    """Each kind is drawn, with its data and a caption beside it; the same run gives the same bytes."""
    first, second = tmp_path / "one.svg", tmp_path / "two.svg"
    extra = ("--metric", "occupancy") if kind == "setting" else ()
    for path in (first, second):
        assert call("plot", kind, "tuned", *extra, "-o", path).status == 0
    for ending in (".svg", ".csv", ".txt"):
        assert first.with_suffix(ending).read_bytes() == second.with_suffix(ending).read_bytes()
    assert first.with_suffix(".csv").read_text().count("\n") > 1
    assert "sample-idle.parquet, 512 nodes" in first.with_suffix(".txt").read_text()


@pytest.mark.parametrize("beside", ["x.csv", "x.txt", "x.svg"])
def test_what_is_beside_a_figure_stays(call, tmp_path, beside):
    """Neither a figure nor its data or caption is replaced without --force, nor is anything else written then."""
    (tmp_path / beside).write_text("mine")
    check_refusal(call("plot", "losses", "short", "-o", tmp_path / "x.svg"))
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [beside]
    assert (tmp_path / beside).read_text() == "mine"
    assert call("plot", "losses", "short", "-o", tmp_path / "x.svg", "--force").status == 0
    assert (tmp_path / "x.csv").read_text().startswith("run,seeds,part,share_percent,half_width\nshort,1,useful,")


@pytest.mark.parametrize(("width", "width_mm"), [("column", 90.0), ("page", 180.0), ("60.3", 60.3)])
def test_width_of_figures(call, tmp_path, width, width_mm):
    """A figure is as wide as a column or page, or as asked, to a tenth of a millimetre."""
    done = call("plot", "losses", "short", "-o", tmp_path / "x.pdf", "--width", width)
    assert done.status == 0, done.err
    box = re.search(rb"/MediaBox \[ *0 0 ([0-9.]+) ", (tmp_path / "x.pdf").read_bytes())
    assert float(box[1]) * 25.4 / 72 == pytest.approx(width_mm, abs=0.1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compare", "absent"), "absent: Expected a result directory with a summary.json, found nothing"),
        (("compare", "short", "--metric", "ocupancy"), "Did you mean 'occupancy'?"),
        (("compare", "short", "--json", "--csv"), "one of --json and --csv"),
        (("report", ".", "-o", "x.html"), "with a summary.json, found none"),
        (("report", "short", "-o", "absent/x.html"), "absent/x.html: No such directory: absent"),
        (("plot", "gantt", "short", "long", "-o", "x.png"), "Expected one run for a Gantt chart, got 2"),
        (("plot", "pool", "short", "-o", "x.gif"), "Expected a figure's name to end in"),
        (("plot", "energy", "short", "-o", "x.png"), "'energy' is not one of"),
        (("plot", "pool", "short", "-o", "x.pdf", "--width", "20"), "column, page, or 50 to 500 millimetres, got '20'"),
        (("plot", "pool", "short", "-o", "x.pdf", "--style", "ggplt"), "Did you mean 'ggplot'?"),
        (("plot", "setting", "short", "-o", "x.png"), "short: The run has no efficiency"),
        (("plot", "setting", "short", "--against", "forward_time", "-o", "x.png"), "Did you mean 'forward_time_s'?"),
        (("plot", "setting", "short", "--metric", "end_reason", "-o", "x.png"), "Expected a figure of the runs"),
    ],
)
def test_bad_input(call, runs, words, said):
    """One line says what was expected; nothing is written."""
    before = sorted(runs.iterdir())
    done = call(*words)
    check_refusal(done)
    assert said in done.err
    assert sorted(runs.iterdir()) == before


@pytest.mark.parametrize("words", [("report", "{}", "-o"), ("plot", "pool", "{}", "-o")], ids=" ".join)
@pytest.mark.parametrize("run", [".", "absent", "there.svg"])
def test_what_is_no_run_is_told_first(call, runs, words, run):
    """Where neither the run nor the place of what is made of it can be used, the run is what is told of."""
    there = runs / "there.svg"
    there.touch()
    done = call(*(word.format(run) for word in words), "there.svg")
    there.unlink()
    check_refusal(done)
    assert f"Error: {run}: Expected a result directory" in done.err


def test_without_the_libraries(call, monkeypatch):
    """Without the extra, one line says how to get it."""
    monkeypatch.setattr("bftrainer.extras.find_spec", lambda _: None)
    done = call("report", "short", "-o", "x.html")
    check_refusal(done)
    assert "pip install '.[report]'" in done.err


def test_names_are_no_formulas(call, runs, tmp_path):
    """A run's name with dollars, or one that begins with _, is drawn as it is."""
    for name in ("_$x_$", "a$b"):
        shutil.copytree(runs / "short", tmp_path / name)
    assert call("plot", "losses", tmp_path / "_$x_$", tmp_path / "a$b", "-o", tmp_path / "f.svg").status == 0
    text = (tmp_path / "f.svg").read_text()
    assert "_$x_$</text>" in text
    assert "a$b</text>" in text


def test_a_brief_is_a_page_or_for_print(call, runs):
    """`--brief` and a name that ends in .pdf give the briefs."""
    assert call("report", "short", "--brief", "-o", "brief.html").out == "Page: brief.html\n"
    text = (runs / "brief.html").read_text()
    assert "<script" not in text
    assert call("report", "short", "tuned", "-o", "both.pdf").status == 0
    assert (runs / "both.pdf").read_bytes().startswith(b"%PDF")
    check_refusal(call("report", "short", "-o", "both.pdf"))
