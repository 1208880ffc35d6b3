"""`bftrainer compare`, `report` and `plot`: what they print and write, and what they refuse."""

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


def test_compare_as_data_and_chosen_figures(call):
    """JSON has every figure, also those that no table shows; those asked for are shown by their keys or words."""
    found = call("compare", "short", "long", "--json").json
    assert [run["name"] for run in found["runs"]] == ["short", "long"]
    assert found["settings"] == {"forward_time_s": [10.0, 120.0]}
    assert set(found["figures"]) > {"occupancy", "gap_max"}
    assert found["figures"]["occupancy"]["relative"][0] == 0.0
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
    assert call("report", "short", "long", "-o", page, "--force").status == 0
    assert "<title>short and long: training on idle nodes</title>" in page.read_text()


def test_what_is_beside_a_figure_stays(call, tmp_path):
    """Neither a figure nor its data or caption is replaced without --force, nor is anything else written then."""
    for beside in ("x.csv", "y.svg"):
        figure = (tmp_path / beside).with_suffix(".svg")
        (tmp_path / beside).write_text("mine")
        check_refusal(call("plot", "losses", "short", "-o", figure))
        assert [path.name for path in tmp_path.glob(f"{figure.stem}.*")] == [beside]
        assert (tmp_path / beside).read_text() == "mine"
        assert call("plot", "losses", "short", "-o", figure, "--force").status == 0
    assert (tmp_path / "x.csv").read_text().startswith("run,seeds,part,share_percent,half_width\nshort,1,useful,")


def test_bad_input(call, runs):
    """One line says what was expected; nothing is written."""
    before = sorted(runs.iterdir())
    for line, said in (
        ("compare absent", "absent: Expected a result directory with a summary.json, found nothing"),
        ("compare short --metric ocupancy", "Did you mean 'occupancy'?"),
        ("report . -o x.html", "with a summary.json, found none"),
        ("report short -o b.txt", "Expected -o to name a page, such as b.html, got b.txt"),
        ("report short -o absent/x.html", "absent/x.html: No such directory: absent"),
        ("plot gantt short long -o x.png", "Expected one run for a Gantt chart, got 2"),
        ("plot pool short -o x.pdf --style ggplt", "Did you mean 'ggplot'?"),
        ("plot setting short -o x.png", "short: The run has no efficiency"),
        ("plot setting short --against forward_time -o x.png", "Did you mean 'forward_time_s'?"),
    ):
        check_refusal(call(*line.split()), said)
        assert sorted(runs.iterdir()) == before


def test_a_brief_is_a_page_or_for_print(call, runs):
    """`--brief` and a name that ends in .pdf give the briefs."""
    assert call("report", "short", "--brief", "-o", "brief.html").out == "Page: brief.html\n"
    text = (runs / "brief.html").read_text()
    assert "<script" not in text
    assert call("report", "short", "tuned", "-o", "both.pdf").status == 0
    assert (runs / "both.pdf").read_bytes().startswith(b"%PDF")
    check_refusal(call("report", "short", "-o", "both.pdf"))
