"""The notebooks of docs/notebooks as pages of the site, with what their cells print and show: each is run once, and
again when it or the package changes. Needs a built package (`make build`).
"""

import base64
import hashlib
import pathlib
import re

import nbformat
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "docs/notebooks"
KEPT = ROOT / "build/notebooks"


def executed(path):
    """The notebook with the outputs of its cells."""
    import scaffolding as sf

    made_of = path.read_bytes() + pathlib.Path(sf._core.__file__).read_bytes()
    kept = KEPT / f"{path.stem}-{hashlib.sha256(made_of).hexdigest()[:16]}.ipynb"
    if kept.is_file():
        return nbformat.read(kept, as_version=4)
    notebook = nbformat.read(path, as_version=4)
    try:
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(KEPT.parent)}}).execute()
    except CellExecutionError as error:
        raise PluginError(f"{path.relative_to(ROOT)}: {error}") from error
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob(f"{path.stem}-*.ipynb"):
        old.unlink()
    nbformat.write(notebook, kept)
    return notebook


def shown(output):
    """What a cell put out, as Markdown."""
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```\n" if output.name == "stdout" else ""
    data = output.get("data", {})
    if "image/png" in data:
        png = base64.b64encode(base64.b64decode(data["image/png"])).decode()
        return f'<img alt="what the cell shows" src="data:image/png;base64,{png}">\n'
    return f"```text\n{data['text/plain'].rstrip()}\n```\n" if "text/plain" in data else ""


def page(path):
    lines = []
    for cell in executed(path).cells:
        if cell.cell_type == "markdown":
            lines.append(cell.source + "\n")
        elif cell.cell_type == "code":
            lines += [f"```python\n{cell.source}\n```\n", *map(shown, cell.outputs)]
    lines.append(f"[The notebook]({path.name}) itself.\n")
    return "\n".join(lines)


def on_files(files, config):
    gallery = next(entry["Notebooks"] for entry in config.nav if isinstance(entry, dict) and "Notebooks" in entry)
    rows = []
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        text = page(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        title = re.match(r"# (.*)", text)[1]
        picture = re.search(r"<img [^>]*>", text)
        rows.append(f"## [{title}]({path.stem}.md)\n\n{picture[0] if picture else ''}\n")
        gallery.append(f"notebooks/{path.stem}.md")
    index = "# Notebooks\n\nRun when this site was made; each page links to its notebook.\n\n" + "\n".join(rows)
    files.append(File.generated(config, "notebooks/index.md", content=index))
    gallery.insert(0, "notebooks/index.md")
    return files
