"""Tabs of the site. What stands between <!-- tabs --> and <!-- /tabs --> is one text after the other where the
documents are read as they are, each under a line of its name, **Python**; on the site the names are tabs.
"""

import re

REGION = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- /tabs -->$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"^\*\*([^*]+)\*\*\n", re.MULTILINE)


def tabbed(region):
    """The region as pymdownx.tabbed has it."""
    before, *parts = NAME.split(region)
    if before.strip() or not parts:
        raise ValueError(f"<!-- tabs -->: each text needs a line with its name, **Name**, got {region[:60]!r}")
    tabs = []
    for name, text in zip(parts[::2], parts[1::2]):
        lines = ("    " + line if line else "" for line in text.strip("\n").split("\n"))
        tabs.append(f'=== "{name}"\n\n' + "\n".join(lines))
    return "\n\n".join(tabs)


def on_page_markdown(markdown, page, config, files):
    return REGION.sub(lambda match: tabbed(match[1]), markdown)
