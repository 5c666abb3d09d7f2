"""The browser that tests of pages look with: Chromium, or the one that CHROMIUM names."""

import os
import shutil

from served import installed

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def browser():
    """Its path. Skips where there is none, unless SF_TEST_INSTALLED says that Debian's programs are there."""
    return installed("chromium", path=os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None))
