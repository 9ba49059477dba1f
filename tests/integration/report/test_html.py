"""`lotus report --html` in a real browser: drawn, usable, safe, and with the report's numbers."""

import json
import shutil
import subprocess

import pytest

from tests.integration.called import called
from tests.integration.conftest import LOTUS, PROGRAMS, ROOT, WARM, environment

SLOWEST_MS = 600_000  # of one thing that a browser does, on a busy machine
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRAWN = "[...document.querySelectorAll('[data-chart]')].map(one => !!one.querySelector('svg'))"


def lotus(*words, cwd):
    ended = subprocess.run(
        [*LOTUS, *map(str, words)],
        capture_output=True, text=True, cwd=cwd, env=environment({}),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def folder(torch, tmp_path_factory):
    """A folder with the run, its page, and what `--json` says."""
    folder = tmp_path_factory.mktemp("html")
    command = [WARM, PROGRAMS / "named.py", "2"]
    lotus("trace", "-q", "--counters=software", "-o", "run", "--", *command, cwd=folder)
    output = lotus("report", "run", "--html", "page.html", cwd=folder)
    assert "page.html" in output
    (folder / "page.json").write_text(lotus("report", "run", "--json", cwd=folder))
    return folder


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        # As root, or in a container, Chromium's own sandbox cannot be made.
        started = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"], timeout=SLOWEST_MS
        )
        yield started
        started.close()


@pytest.fixture
def opened(browser, folder):
    """A function that opens the page; all that goes wrong in it is found at the end."""
    wrong, pages = [], []

    def open_page(file=None, **options):
        page = browser.new_page(**{"viewport": {"width": 1200, "height": 900}, **options})
        page.set_default_timeout(SLOWEST_MS)
        pages.append(page)
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: wrong.extend(
            [request.url] if not request.url.startswith(("file:", "data:", "blob:")) else []
        ))  # fmt: skip
        page.goto((file or folder / "page.html").as_uri())
        return page

    yield open_page
    for page in pages:
        page.close()
    assert not wrong


def until(page, expression):
    """Wait for it. Not by wait_for_function: that evaluates text, which the page forbids."""
    while not page.evaluate(expression):
        page.wait_for_timeout(20)


def draw_all(page):
    """Look at every chart, as who scrolls down does."""
    for chart in page.locator("[data-chart]").all():
        chart.scroll_into_view_if_needed()
    until(page, f"{DRAWN}.every(Boolean)")


def test_every_chart_is_drawn_when_it_is_looked_at(opened):
    page = opened()
    draw_all(page)
    assert page.locator("[data-chart]").count() >= 8
    assert page.title().startswith("lotus: ")
    # A heat map that failed would be an empty picture.
    assert page.locator("[data-chart=timeline] image").count() == 1


def test_the_page_shows_the_numbers_of_json(opened, folder):
    page = opened()
    draw_all(page)
    document = json.loads((folder / "page.json").read_text())
    kept = json.loads(page.locator("#document").text_content())
    for row, wanted in zip(
        kept["loaders"][0]["operations"], document["loaders"][0]["operations"], strict=True
    ):
        assert row.keys() == wanted.keys()
        for name, value in wanted.items():
            number = isinstance(value, float)
            assert row[name] == (pytest.approx(value, rel=1e-6) if number else value)
    causes = sorted(document["loaders"][0]["verdict"]["causes"], key=lambda cause: -cause["share"])[
        :10
    ]
    drawn = page.evaluate("document.querySelector('[data-chart=causes]').data[0].x")
    assert drawn == pytest.approx([100 * cause["share"] for cause in causes], rel=1e-6)
    waits = page.evaluate(
        "Array.from(document.querySelector('[data-chart=batches]')._fullData[0].y)"
    )
    spread = next(row for row in document["loaders"][0]["batches"] if row["measure"] == "wait")
    assert sum(waits) * 1e6 == pytest.approx(spread["total_ns"], rel=1e-4)
    assert len(waits) == spread["count"]
    assert (
        page.locator("h1")
        .text_content()
        .replace(" ", "-")
        .lower()
        .endswith(document["verdict"]["kind"])
    )


def test_a_name_that_a_browser_would_run_stays_text(opened, folder):
    page = opened()
    draw_all(page)
    name = "<script>document.title='run'</script>"
    document = json.loads((folder / "page.json").read_text())
    assert name in {row["operation"] for row in document["loaders"][0]["operations"]}
    assert page.title() != "run"
    assert page.locator("script").count() == 4
    labels = page.locator("[data-chart=shares] .ytick").all_text_contents()
    assert any("<script>" in label for label in labels)


def test_zoom_legend_menu_and_the_light(opened):
    page = opened()
    draw_all(page)
    chart = page.locator("[data-chart=batches]")
    chart.scroll_into_view_if_needed()
    shown = "document.querySelector('[data-chart=batches]').layout.xaxis.range"
    before = page.evaluate(shown)
    box = chart.locator(".nsewdrag").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.25 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=5)
    page.mouse.up()
    until(page, f"{shown}[1] < {before[1]}")
    low, high = page.evaluate(shown)
    assert before[0] < low < high < before[1]

    delay = "document.querySelector('[data-chart=batches]').data.find(t => t.name == 'delay')"
    assert page.evaluate(f"{delay}.visible") == "legendonly"
    # The element that takes the click lies over the legend's text.
    chart.locator(".traces", has_text="delay").locator(".legendtoggle").click()
    until(page, f"{delay}.visible === true")

    menu = page.locator("[data-chart=metrics]")
    menu.scroll_into_view_if_needed()
    visible = "document.querySelector('[data-chart=metrics]').data.map(t => t.visible)"
    assert page.evaluate(visible)[:2] == [True, False]
    menu.locator(".updatemenu-header").click()
    menu.locator(".updatemenu-dropdown-button").nth(1).click()
    until(page, f"{visible}[1] === true")
    assert page.evaluate(visible)[0] is False

    paper = "getComputedStyle(document.body).backgroundColor"
    ink = "document.querySelector('[data-chart=batches]')._fullLayout.font.color"
    light = page.evaluate(paper), page.evaluate(ink)
    page.locator("#theme").click()
    until(page, f"{paper} !== {json.dumps(light[0])}")
    assert page.evaluate(ink) != light[1]


@pytest.mark.parametrize("light", ["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_screen(opened, light):
    page = opened(viewport={"width": 390, "height": 800}, color_scheme=light)
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    # AND no line ends within an option of a command, as `--`
    options = page.locator("p span, td span")
    assert "--" in options.all_text_contents()
    lines = "all => all.map(one => one.offsetHeight / parseFloat(getComputedStyle(one).lineHeight))"
    assert max(options.evaluate_all(lines)) < 1.5
    red = page.evaluate("+getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    assert (red < 60) == (light == "dark")


def test_every_chart_has_its_numbers_in_a_table(opened):
    page = opened()
    for figure in page.locator("figure").all():
        figure.locator("summary").click()
        assert figure.locator("tbody tr").first.is_visible()


SWEEP = ROOT / "traces" / "classification"
OTHERS = {
    "sweep": (["report", SWEEP], "Sweep: "),
    "compare": (["compare", *(SWEEP / "runs" / f"workers{n}-0" for n in (0, 2))], "compare"),
}


@pytest.mark.parametrize("which", OTHERS)
def test_pages_of_sweeps_and_comparisons_are_drawn(opened, tmp_path, which):
    words, title = OTHERS[which]
    file = tmp_path / "other.html"
    done = called(*words, "--html", file)
    assert done.returncode == 0, done.stderr
    for width in (1200, 390):
        page = opened(file, viewport={"width": width, "height": 800})
        draw_all(page)
        assert page.locator("[data-chart]").count() >= 2
        assert title.lower() in page.title().lower() + page.locator("h1").text_content().lower()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
