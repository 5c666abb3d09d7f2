"""docs/trajectory.html in a browser without a window: events reach the page as of mouse, finger and keyboard."""

import html
import json
import pathlib
import re
import subprocess

import pytest
from chromium import browser

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/trajectory.html"

# What every test may call. A position is one of the canvas of 256 by 256.
TOOLS = """
const canvas = document.getElementById("canvas"), by_id = id => document.getElementById(id);
const wait = ms => new Promise(done => setTimeout(done, ms));
function pointer(kind, x, y, type = "mouse") {
  const box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new PointerEvent(kind, {
    clientX: box.left + canvas.clientLeft + x * canvas.clientWidth / 256,
    clientY: box.top + canvas.clientTop + y * canvas.clientHeight / 256,
    bubbles: true, cancelable: true, isPrimary: true, button: 0, buttons: 1, pointerId: 7, pointerType: type}));
}
function click(x, y, type) { pointer("pointerdown", x, y, type); pointer("pointerup", x, y, type); }
function drag(points, type) {
  pointer("pointerdown", ...points[0], type);
  for (const p of points.slice(1)) pointer("pointermove", ...p, type);
  pointer("pointerup", ...points[points.length - 1], type);
}
function key(name, of = {}) {
  canvas.dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true, cancelable: true, ...of}));
}
function set(id, value) { by_id(id).value = value; by_id(id).dispatchEvent(new Event("input")); }
const command = () => by_id("command").value;
const files = () => [...by_id("files").children].map(item => item.textContent);
async function saved(index) {   // what the download of a points file holds
  const before = URL.createObjectURL, click = HTMLAnchorElement.prototype.click;
  let blob, name;
  URL.createObjectURL = b => { blob = b; return before.call(URL, b); };
  HTMLAnchorElement.prototype.click = function () { name = this.download; };
  by_id("files").children[index].querySelector("button").click();
  URL.createObjectURL = before;
  HTMLAnchorElement.prototype.click = click;
  return [name, await blob.text()];
}
function inked() {   // pixels of the drawing that are not grey
  const p = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let n = 0;
  for (let i = 0; i < p.length; i += 4) n += Math.abs(p[i] - p[i + 1]) + Math.abs(p[i + 1] - p[i + 2]) > 40;
  return n;
}
"""


@pytest.fixture
def page(tmp_path):
    program = browser()

    def run(script):
        """What `script` leaves in `say`."""
        own = PAGE.read_text()
        end = f"""<script>(async () => {{ const say = {{}}; {TOOLS}
            try {{ {script} }} catch (e) {{ say.error = String(e); }}
            const out = document.createElement("pre");
            out.id = "said"; out.textContent = JSON.stringify(say);
            document.body.append(out); }})();</script></body>"""
        assert own.count("</body>") == 1
        path = tmp_path / "page.html"
        path.write_text(own.replace("</body>", end))
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
        command += ["--window-size=1200,900", "--dump-dom", path.as_uri()]
        for budget in (4000, 16000, 64000):  # may be over before files are read, where the machine is busy
            timed = [*command, f"--virtual-time-budget={budget}"]
            done = subprocess.run(timed, capture_output=True, text=True, timeout=120)
            if found := re.search(r'<pre id="said">(.*?)</pre>', done.stdout, re.DOTALL):
                break
        assert found, done.stdout[-2000:] + done.stderr[-2000:]
        said = json.loads(html.unescape(found[1]))
        assert "error" not in said, said["error"]
        return said

    return run


def test_the_page_needs_nothing_else():
    text = PAGE.read_text()
    assert len(text.split("\n")) < 400
    assert not re.search(r"https?://|<link|src=|@import|import\(|fetch\(|XMLHttpRequest", text)


def points(text, separator=" "):
    return [tuple(map(int, p.split(","))) for p in text.split(separator)]


def test_clicks_and_drags(page):
    said = page("""
      say.empty = command();
      say.cannot_copy = by_id("copy").disabled;
      click(40, 216); say.one_point = by_id("status").textContent;
      click(128, 80); click(216, 40);
      say.clicked = command(); say.file = await saved(0); say.files = files();
      set("width", 128); set("height", 96); say.scaled = command();
      set("prompt", 'a "red" rocket, it\\'s $5'); set("file", "my clip.webp"); say.quoted = command();
      by_id("undo").click(); say.undone = await saved(0);
      by_id("another").click();
      drag([[10, 10], [20, 10], [60, 10], [250, 10]]);
      say.two = command(); say.drawn = await saved(1); say.both = files(); say.ink = inked();
      by_id("undo").click(); by_id("undo").click(); say.one_left = files();
      by_id("clear").click(); say.cleared = command(); say.no_ink = inked();
    """)
    assert said["empty"] == said["cleared"] == "" and said["cannot_copy"]
    assert "needs two points" in said["one_point"]
    assert said["clicked"] == 'scaffolding txt2vid "rocket, noto" --trajectory "10,54 32,20 54,10" -o out.mp4'
    assert said["file"] == ["trajectory.txt", "40,216\n128,80\n216,40\n"] and said["files"][0].startswith(
        "trajectory.txt: 3 points"
    )
    assert '--trajectory "20,81 64,30 108,15"' in said["scaled"]
    assert said["quoted"].startswith("scaffolding txt2vid 'a \"red\" rocket, it'\\''s $5' --trajectory")
    assert said["quoted"].endswith('-o "my clip.webp"')
    assert said["undone"][1] == "40,216\n128,80\n"
    # A path has a point for each frame, at equal steps.
    name, text = said["drawn"]
    along = points(text.strip(), "\n")
    assert name == "trajectory2.txt" and len(along) == 17 and along[0] == (10, 10) and along[-1] == (250, 10)
    assert all(abs(x - (10 + 15 * k)) <= 1 and y == 10 for k, (x, y) in enumerate(along))
    assert said["two"].count("--trajectory") == 2 and len(said["both"]) == 2
    assert said["ink"] > 500 and said["no_ink"] == 0 and len(said["one_left"]) == 1


def test_the_command_is_a_shells(page):
    said = page("""
      set("prompt", 'a "red" rocket, it\\'s `$5`!'); set("file", "$x y.mp4");
      click(0, 0); click(255, 255); say.it = command();
    """)
    done = subprocess.run(
        ["bash", "-c", said["it"].replace("scaffolding", r"printf '%s\n'", 1)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[:-1] == [
        *("txt2vid", 'a "red" rocket, it\'s `$5`!', "--trajectory", "0,0 63,63", "-o", "$x y.mp4")
    ]


def test_the_keyboard_draws_too(page):
    said = page("""
      canvas.focus(); say.focused = document.activeElement === canvas;
      key("Enter"); key("ArrowRight"); key("ArrowRight", {shiftKey: true}); key("ArrowUp");
      say.cross = by_id("status").textContent;
      key("Enter"); say.said = by_id("status").textContent;
      for (let i = 0; i < 50; ++i) key("ArrowLeft", {shiftKey: true});
      key("Enter"); say.drawn = await saved(0);
      key("Backspace"); say.undone = await saved(0);
      key("n"); key("Enter"); say.another = files().length; key("z", {ctrlKey: true}); say.back = files().length;
    """)
    assert said["focused"] and said["cross"] == "148, 124" and said["said"] == "Point 2 at 148, 124."
    assert said["drawn"][1] == "128,128\n148,124\n0,124\n" and said["undone"][1] == "128,128\n148,124\n"
    assert (said["another"], said["back"]) == (2, 1)


def test_fingers_frames_and_speed(page):
    said = page("""
      pointer("pointerdown", 20, 100, "touch");
      pointer("pointermove", 60, 100, "touch"); await wait(300);
      pointer("pointermove", 61.5, 100, "touch"); await wait(300);
      pointer("pointermove", 220, 100, "touch"); pointer("pointermove", 999, 999, "touch");
      pointer("pointerup", 999, 999, "touch"); pointer("pointermove", 5, 5, "touch");
      set("frames", 5); say.evenly = await saved(0);
      by_id("as_drawn").checked = true; by_id("as_drawn").dispatchEvent(new Event("input"));
      say.as_drawn = await saved(0);
      say.last_frame = by_id("time").max;
      by_id("time").value = 4; by_id("time").dispatchEvent(new Event("input"));
      by_id("play").click(); say.playing = by_id("play").textContent; await wait(300);
      say.frame = by_id("time").value; by_id("play").click(); say.stopped = by_id("play").textContent;
      set("frames", 100000); say.most = by_id("time").max;
      set("width", 720); set("height", 480); say.shape = [canvas.width, canvas.height];
    """)
    evenly, as_drawn = (points(said[k][1].strip(), "\n") for k in ("evenly", "as_drawn"))
    assert len(evenly) == len(as_drawn) == 5 and evenly[0] == as_drawn[0] == (20, 100)
    assert evenly[-1] == as_drawn[-1] == (255, 255), "points stay on the canvas"
    assert evenly[1][0] > 90 and 55 <= as_drawn[2][0] <= 70, "the pause in the drawing is kept, or not"
    assert said["last_frame"] == "4" and said["playing"] == "Stop" and said["stopped"] == "Play"
    assert said["frame"] != "4" and said["most"] == "999" and said["shape"] == [512, 341]
