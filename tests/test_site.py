"""The site's pages in a browser without a window, as wide as a phone and as a desk: nothing is wider than the page,
pictures are shown, tabs switch, the search finds, and nothing is asked of another host. The pages of C++ and of
notebooks, which take minutes, are left out: `make site` makes them."""

import html
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from chromium import browser

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTHS = (360, 1280)
PAGES = {  # page: names of the tabs of its first set
    "index": [],
    "install": ["Program", "Python", "C++"],
    "first_picture": ["Program", "Python", "C++"],
    "concepts": ["Python", "C++", "Program"],
    "python/nn/Conv2d": [],
    "python/functions/index": [],
    "python/functions/s": [],
}
# What a page tells of itself, to the page that holds it in a frame of some width.
TELLS = """<script>addEventListener("load", () => setTimeout(() => {
  const say = {page: PAGE, width: innerWidth, tabs: []};
  say.room = document.documentElement.clientWidth;
  say.content = document.documentElement.scrollWidth;
  say.pictures = [...document.querySelectorAll("article img")].map(i => [i.naturalWidth, i.clientWidth]);
  const set = document.querySelector(".tabbed-set");
  for (const label of set ? set.querySelectorAll(":scope > .tabbed-labels > label") : []) {
    label.click();
    const blocks = [...set.querySelectorAll(":scope > .tabbed-content > .tabbed-block")];
    const shown = blocks.filter(b => b.offsetHeight);
    say.tabs.push([label.textContent.trim(), blocks.indexOf(shown[0]), shown.length]);
  }
  say.text = document.querySelector("article, body").innerText;
  say.requests = performance.getEntriesByType("resource").map(e => e.name);
  parent.postMessage(say, "*");
}, 1500));</script></body>"""
HOLDS = """<body>{frames}<pre id="said">[]</pre><script>const said = [];
addEventListener("message", e => {{ if (e.data.page) {{
  said.push(e.data); document.getElementById("said").textContent = JSON.stringify(said); }} }});
</script></body>"""


SEARCHES = """<pre id="said">[]</pre><script>addEventListener("load", () => setTimeout(async () => {
  const query = document.querySelector("[data-md-component=search-query]");
  query.focus();
  query.value = "softmax";
  query.dispatchEvent(new KeyboardEvent("keyup"));
  const items = () => [...document.querySelectorAll(".md-search-result__item")];
  for (let i = 0; i < 100 && !items().length; ++i) await new Promise(done => setTimeout(done, 200));
  document.getElementById("said").textContent = JSON.stringify(items().map(i => i.innerText));
}, 1500));</script></body>"""


def said_on(path, count):
    """The list of `count` or more that a page leaves under #said."""
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={path.parent / 'profile'}"]
    command += ["--window-size=1400,1000", "--dump-dom", path.as_uri()]
    for budget in (8000, 32000, 128000):  # may be over before all is said, where the machine is busy
        timed = [*command, f"--virtual-time-budget={budget}"]
        done = subprocess.run(timed, capture_output=True, text=True, timeout=300)
        found = re.search(r'<pre id="said">(.*?)</pre>', done.stdout, re.DOTALL)
        said = json.loads(html.unescape(found[1])) if found else []
        if len(said) >= count:
            return said
    raise AssertionError(f"{path.name} said {len(said)} of {count}: {done.stderr[-2000:]}")


def with_script(folder, page, script):
    """A copy of the page beside it, with a script of ours."""
    path = folder / f"{page}.html"
    text = path.read_text()
    assert "</body>" in text
    copy = path.with_name(path.stem + ".told.html")
    copy.write_text(text.replace("</body>", script))
    return copy


def looked_at(folder, pages):
    """What each of a folder's pages tells at each width."""
    frames = ""
    for page in pages:
        told = with_script(folder, page, TELLS.replace("PAGE", json.dumps(page)))
        for width in WIDTHS:
            frames += f'<iframe style="width:{width}px;height:900px;border:0" src="{told.as_uri()}"></iframe>'
    (folder / "frames.html").write_text(HOLDS.format(frames=frames))
    return said_on(folder / "frames.html", len(pages) * len(WIDTHS))


def faults(said):
    """What is wrong with a page at a width."""
    where = f"{said['page']} at {said['width']}"
    out = [f"{where} asks for {r}" for r in said["requests"] if not r.startswith(("file:", "data:", "blob:"))]
    if said["content"] > said["room"]:
        out.append(f"{where} is {said['content']} wide")
    return out + [f"{where}: a picture is not shown" for natural, shown in said["pictures"] if not (natural and shown)]


@pytest.fixture
def site(tmp_path):
    browser()
    sf = pytest.importorskip("scaffolding")
    hooks = [str(ROOT / f"tools/mkdocs_{name}.py") for name in ("tabs", "links", "reference")]
    config = {"INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": str(ROOT / "docs"), "hooks": hooks}
    (tmp_path / "mkdocs.yml").write_text(json.dumps({**config, "site_dir": str(tmp_path / "site")}))
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", tmp_path / "mkdocs.yml"]
    path = str(pathlib.Path(sf.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return tmp_path / "site"


def test_pages_at_two_widths(site):
    pages = looked_at(site, PAGES)
    assert {said["width"] for said in pages} == set(WIDTHS)
    assert not [fault for said in pages for fault in faults(said)]
    for said in pages:
        names = PAGES[said["page"]]
        assert said["tabs"] == [[name, number, 1] for number, name in enumerate(names)], said["page"]
    told = {said["page"]: said for said in pages}
    assert told["index"]["pictures"], "the first page shows pictures"
    found = said_on(with_script(site, "index", SEARCHES), 1)  # a page from the disk, too, may be searched
    assert any("softmax" in item for item in found), found
    assert "Example" in told["python/nn/Conv2d"]["text"] and ">>> conv = nn.Conv2d(" in told["python/nn/Conv2d"]["text"]
    assert ">>> sf.softmax(" in told["python/functions/s"]["text"]
    assert "softmax: exp(input)" in told["python/functions/index"]["text"]


def test_what_is_wrong_is_told(tmp_path):
    (tmp_path / "page.html").write_text(
        '<html><body style="margin:0"><article><img src="none.png"><div style="width:500px">wide</div></article>'
        '<script src="https://elsewhere.invalid/a.js"></script></body></html>'
    )
    narrow, wide = sorted(looked_at(tmp_path, ["page"]), key=lambda said: said["width"])
    asked = [f"page at {w} asks for https://elsewhere.invalid/a.js" for w in WIDTHS]
    assert faults(narrow) == [asked[0], "page at 360 is 500 wide", "page at 360: a picture is not shown"]
    assert faults(wide) == [asked[1], "page at 1280: a picture is not shown"]
