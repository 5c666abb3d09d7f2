"""Draws docs/pictures/page.webp: the page of `scaffolding serve` with pictures of the model that ships.

PYTHONPATH=build/python python tools/make_page_picture.py build      # needs playwright and Debian's chromium
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.request

from playwright.sync_api import sync_playwright

import scaffolding as sf

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/pictures/page.webp"
MOST_BYTES = 30_000
PROMPTS = ["red apple, noto", "rocket, noto", "blue car, noto", "snail, noto"]


def draw(url, folder):
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 800})
        page.goto(url)
        page.fill("[name=prompt]", PROMPTS[0])
        page.fill("[name=seed]", "7")
        page.click("text=X/Y grid")
        page.select_option("[aria-label='X: what changes']", "prompt")
        page.fill("[aria-label='X: its values']", "; ".join(PROMPTS))
        page.click("text=Make the grid")
        page.wait_for_selector("[aria-label=Grid] tr td:nth-of-type(4) img", timeout=300_000)
        page.click("sf-create button.main")
        page.wait_for_selector("#stage button img", timeout=300_000)
        page.wait_for_timeout(8000)  # what was said is silent again
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=folder / "page.png")
        browser.close()


def main(build):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        command = [build / "scaffolding", "serve", "--port", "0", "--data", folder / "data"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            url = server.stdout.readline().strip()
            assert json.load(urllib.request.urlopen(url + "/api/v1/session"))["signed_in"]
            draw(url, folder)
        finally:
            server.terminate()
            server.wait()
        picture = sf.io.read_image(str(folder / "page.png"), mode="RGB")
        for quality in range(80, 20, -10):
            sf.io.write_image(str(PICTURE), picture, quality=quality)
            if PICTURE.stat().st_size < MOST_BYTES:
                break
    print(PICTURE, PICTURE.stat().st_size, "bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]).resolve())
