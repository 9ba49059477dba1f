"""Pages that stand alone, whatever names are in them."""

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from lotus.common.errors import LotusError
from lotus.reporters.base import page
from lotus.reporters.base.labelled_text import LabelledText
from lotus.reporters.base.page import Chart, Details, Section, Table

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\u202e&amp;\"'"


def chart(name: str = "one", title: str = "A chart") -> Chart:
    figure = {"data": [{"type": "bar", "x": [1.0, np.nan], "name": title}], "layout": {}}
    return Chart(name, title, figure, Table([(title, "left"), ("n", "right")], [[title, "2"]]))


def text_of(*sections: Section, title: str = "t", document: object = None) -> str:
    return "".join(page.pieces(title, Section(title, [title]), sections, document))


class Seen(HTMLParser):
    """Elements and the text of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def parsed(text: str) -> Seen:
    seen = Seen()
    seen.feed(text)
    return seen


def test_a_label_is_bold_and_a_command_is_code() -> None:
    step, command = LabelledText("Next", "a: b"), LabelledText("next", "lotus x", is_command=True)
    assert (step, step.words) == ("Next: a: b", "a: b")
    text = text_of(Section("s", [step, command]))
    assert "<p><b>Next:</b> a: b</p>" in text
    assert "<p><b>next:</b> <code>lotus x</code></p>" in text


def test_a_line_never_ends_within_an_option() -> None:
    words = "lotus trace --py-spy -- python train.py --batch-size=4; -x, set-up and 1 - 2"
    shown = words.replace("--py-spy -- p", "<span>--py-spy</span> <span>--</span> p")
    shown = shown.replace("--batch-size=4", "<span>--batch-size=4</span>")
    shown = shown.replace("-x", "<span>-x</span>")
    labelled = LabelledText("next", words, is_command=True)
    text = text_of(Section("s", [words, labelled, Table([("a", "left")], [[words]])]))
    assert f"<p>{shown}</p>" in text
    assert f"<code>{shown}</code>" in text
    assert f"<td>{shown}</td>" in text


def test_details_are_behind_their_title() -> None:
    details = Details("More", ["one", Table([("a", "left")], [["b"]])])
    text = text_of(Section("s", [details]))
    inner = text.partition("<details><summary>More</summary>")[2].partition("</details>")[0]
    assert "<p>one</p>" in inner
    assert "<td>b</td>" in inner


def test_names_stay_text() -> None:
    parts = [
        HOSTILE,
        LabelledText(HOSTILE, HOSTILE, is_command=True),
        chart(title=HOSTILE),
        Table([(HOSTILE, "left")], [[HOSTILE]]),
        Details(HOSTILE, [HOSTILE]),
    ]
    text = text_of(Section(HOSTILE, parts), title=HOSTILE, document={HOSTILE: HOSTILE})
    seen = parsed(text)
    labelled = LabelledText("t", "t", is_command=True)
    parts = ["t", labelled, chart(), Table([("t", "left")], [["t"]]), Details("t", ["t"])]
    plain = parsed(text_of(Section("t", parts)))
    assert [tag for tag, _ in seen.elements] == [tag for tag, _ in plain.elements]
    assert not any(name.startswith("on") for _, attributes in seen.elements for name in attributes)
    assert not set(text) & set("\x1b\u202e")
    assert json.loads(seen.scripts[1]) == {HOSTILE: HOSTILE}


def test_the_page_may_run_its_own_scripts_and_load_nothing() -> None:
    seen = parsed(text_of(Section("t", [chart()])))
    policy = next(
        attributes["content"]
        for tag, attributes in seen.elements
        if "content" in attributes and tag == "meta"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    kinds = [attributes.get("type") for tag, attributes in seen.elements if tag == "script"]
    run = [text for text, kind in zip(seen.scripts, kinds, strict=True) if kind is None]
    hashes = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in run}
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == hashes
    assert len(hashes) == 2
    assert not any({"src", "href"} & attributes.keys() for _, attributes in seen.elements)


def test_the_document_and_the_numbers_of_figures_are_kept() -> None:
    numbers = {"a": [1, 2.5, None], "b": {"c": "d"}}
    seen = parsed(text_of(Section("t", [chart()]), document=numbers))
    assert json.loads(seen.scripts[1]) == numbers
    assert json.loads(seen.scripts[0])["one"]["data"][0]["x"] == [1.0, None]


def test_packed_numbers_are_what_they_were() -> None:
    values = np.arange(6).reshape(2, 3)
    packed = page.packed(values, "i4")
    again = np.frombuffer(base64.b64decode(packed["bdata"]), "<i4").reshape(2, 3)
    assert (again == values).all()
    assert packed["shape"] == "2, 3"


def test_a_table_of_very_many_rows_is_cut_and_says_so() -> None:
    table = Table([("n", "right")], [[str(n)] for n in range(5000)])
    text = text_of(Section("t", [table]))
    assert text.count("<td ") == 1000
    assert "4,000 rows more are left out" in text


def test_two_charts_of_one_id_are_a_defect() -> None:
    with pytest.raises(AssertionError):
        text_of(Section("t", [chart(), chart()]))


def test_a_page_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("old")
    broken = Chart("x", "t", {"data": [object()], "layout": {}}, Table([], []))
    with pytest.raises(TypeError):
        page.save(target, "t", Section("t", []), [Section("t", [broken])], None)
    assert target.read_text() == "old"
    with pytest.raises(LotusError, match="--html names another file"):
        page.save(tmp_path / "none" / "p", "t", Section("t", []), [], None)
    page.save(target, "t", Section("a < b", []), [], None)
    assert f"<h1>{html.escape('a < b')}</h1>" in target.read_text()


def test_the_document_keeps_no_more_of_a_list_than_a_page_can_bear() -> None:
    seen = parsed(text_of(Section("t", []), document={"rows": list(range(5000)), "n": 1}))
    assert json.loads(seen.scripts[1]) == {"rows": list(range(1000)), "n": 1}
