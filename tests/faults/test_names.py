"""Names that would steer a terminal or a page, and names of a megabyte, through all that writes."""

import html.parser
import json

import pytest

import lotus
from lotus import cli
from lotus.export.formats import FORMATS
from tests.logs import RunBuilder
from tests.simulation import simulate

LONG = "n" * (1 << 20)
NAMES = (
    "\x1b[2J\x1b]0;owned\x07clear",
    "\u202egnp.exe\u2066",
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a\r\nb\x00c\x85\u2028d",
    "half \ud800 pair",
    "[bold red]markup[/]",
    "=cmd|' /C calc'!A0",
    LONG,
)
STEERS = "\x00\x07\x08\x1b\x85\u2028\u202e\u2066\r"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose operations, command, host, data set and files have such names."""
    path = tmp_path_factory.mktemp("names") / "run"
    builder = RunBuilder(path, command=["python", *NAMES[:-1]], host=NAMES[1])
    ops = [(name, 3_000_000) for name in NAMES]
    simulate(path, workers=1, batches=3, batch_size=2, ops=ops, builder=builder)
    log = builder.logs[0]
    for name in NAMES:
        log.event("note", text=name)
        log.event("unseen", what=name, why=name)
        log.event("sample_path", sample=1, path=name, duration_ns=9)
    log.loader(1, dataset=NAMES[2], call_site=NAMES[3], collate_fn=LONG)
    builder.report("fault", error=NAMES[0])
    return builder.end()


def harmless(text):
    assert not set(text) & set(STEERS)
    assert not any("\ud800" <= char <= "\udfff" for char in text)


@pytest.mark.parametrize("verb", ["report", "map", "top --once"])
def test_a_terminal_is_not_steered(run, capfd, verb):
    word, *more = verb.split()
    assert cli.main([word, *more, str(run)]) in (0, 2)
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    harmless(out + err)
    assert len(out) < 1 << 20  # no name of a megabyte fills the screen


@pytest.mark.parametrize("options", [["--json"], ["--json", "--slowest", "3"]])
def test_documents_keep_names_whole_and_steer_nothing(run, capfd, options):
    assert cli.main(["report", *options, str(run)]) == 0
    out = capfd.readouterr().out
    harmless(out)
    document = json.loads(out, parse_constant=pytest.fail)
    names = {row["operation"] for row in document["loaders"][0]["operations"]}
    assert {NAMES[0], NAMES[2]} <= names


class Tags(html.parser.HTMLParser):
    """Which tags and handlers a page has."""

    def __init__(self):
        super().__init__()
        self.tags, self.handlers = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def test_a_page_runs_nothing_of_a_name(run, tmp_path):
    path = tmp_path / "page.html"
    assert cli.main(["report", "--html", str(path), str(run)]) == 0
    text = path.read_text(encoding="utf-8")
    plain = simulate(tmp_path / "plain", workers=1, batches=3, batch_size=2)
    assert cli.main(["report", "--html", str(tmp_path / "plain.html"), str(plain)]) == 0
    page, other = Tags(), Tags()
    page.feed(text)
    other.feed((tmp_path / "plain.html").read_text(encoding="utf-8"))
    assert page.handlers == []
    assert "img" not in page.tags
    assert set(page.tags) <= set(other.tags) | {"li", "ul", "p", "td", "th", "tr", "table", "div"}
    assert "alert(1)</script>" not in text
    assert "\u202e" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_exports_hold_such_names(run, tmp_path, capfd, form):
    if form == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / "out"
    code = cli.main(["export", "--format", form, "-o", str(path), str(run)])
    out, err = capfd.readouterr()
    if code:  # refused in a line, as where a form needs samples
        assert (code, err.count("\n")) == (2, 1)
        pytest.skip(err)
    harmless(out + err)
    assert "Traceback" not in err
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    assert files
    for file in files:
        data = file.read_bytes()
        assert data
        assert b"\x1b" not in data or form in ("perfetto", "pprof", "parquet", "csv")
        if form in ("chrome", "speedscope"):
            json.loads(data)


@pytest.mark.parametrize(("form", "file"), [("csv", "ops.csv"), ("chrome", "")])
def test_a_row_does_not_repeat_a_name_of_a_megabyte(run, tmp_path, form, file):
    path = tmp_path / "out"
    assert cli.main(["export", "--format", form, "-o", str(path), str(run)]) == 0
    text = (path / file if file else path).read_text(encoding="utf-8")
    assert LONG not in text
    assert sum("n" * 500 in line for line in text.splitlines()) >= 6  # each row has it, shortened


def test_the_run_itself_is_read(run):
    loaded = lotus.load(run)
    assert LONG in set(loaded.ops["operation"].astype(str))
