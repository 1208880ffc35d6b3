"""Pages lead where they say; those for developers speak of what is there: each module, name and path exists."""

import pkgutil
import re
from importlib.metadata import distribution
from pathlib import Path

import pytest

from bftrainer._version import __version__
from bftrainer.schedulers import IMPORTERS

ROOT = Path(__file__).parents[2]
DEVELOPER_PAGES = sorted((ROOT / "docs" / "dev").glob("*.md"))
PAGES = (*(str(path.relative_to(ROOT)) for path in DEVELOPER_PAGES), "docs/zeus.md", "CONTRIBUTING.md", "SECURITY.md")
ALL_PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def named(page: str) -> list[str]:
    """What stands between backticks in running text."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("page", PAGES)
def test_names_are_there(page):
    """Dotted names of ours import; paths below folders of the repository exist."""
    names = {name for name in named(page) if re.fullmatch(r"(bftrainer|solvers)(\.(?!py$)\w+)+", name)}
    groups = {IMPORTERS.group, *(point.group for point in distribution("bftrainer").entry_points)}
    for name in names - groups:
        pkgutil.resolve_name(name)
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
    paths = [name for name in named(page) if re.fullmatch(rf"({folders})/[\w./-]*", name)]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_all_rooms_are_told_of():
    """The table of rooms has each of them once."""
    text = (ROOT / "docs" / "dev" / "architecture.md").read_text(encoding="utf-8")
    rows = [re.findall(r"`([\w/.]+)`", line.split("|")[1]) for line in text.splitlines() if line.startswith("| `")]
    told = [name for row in rows for name in row if "/" in name or name == "solvers"]
    small = {"__init__.py", "_version.py", "py.typed"}
    rooms = {path.name for path in (ROOT / "bftrainer").iterdir() if not path.name.startswith("__pycache__")}
    assert sorted(told) == sorted({"solvers", *(f"bftrainer/{name}" for name in rooms - small)})


def test_the_version_to_cite():
    """CITATION.cff names the version that the package has."""
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1] == __version__


def test_tests_that_show_promises_are_there():
    """Each test that SECURITY.md names is one; a name without a file is in the file before it."""
    path = ""
    for name in named("SECURITY.md"):
        if "::" in name:
            path, function = name.split("::") if not name.startswith("::") else (path, name[2:])
            assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), name


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page):
    """Every link to another file of the repository names one that is there."""
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r' src="([^"]+)"', text)
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert missing == []


def test_the_contents_name_every_page_once():
    """The site's contents list all pages of docs/, each once, and no other."""
    listed = re.findall(r"^ +- .+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))


def test_extras_are_installed_from_the_checkout():
    """Never by name, as no index has it."""
    for page in ALL_PAGES:
        for line in re.findall(r".*pip install .*", page.read_text(encoding="utf-8")):
            assert "bftrainer[" not in line.partition("pip install ")[2], (page, line)
