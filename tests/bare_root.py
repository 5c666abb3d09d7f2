"""Runs a wheel on a system that has Python and nothing else: `make bare-room`.

    python tests/bare_root.py dist/scaffolding-0.1.0-cp311-cp311-manylinux_2_36_x86_64.whl

The system is a folder of Debian's packages for Python and what they need, seen by chroot; the wheel and its
dependencies are unpacked into it by this machine's pip. There the first Python program of README.md is run as it
stands. Run by another Python than 3.11, the system's is a copy of that one. Needs root and apt-get."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = "libc6 libgcc-s1 libstdc++6 python3-minimal python3.11 zlib1g libexpat1 libssl3 libffi8 liblzma5 libbz2-1.0"
# Python packages of Debian's that python3.11 needs and that have no library of ours.
PACKAGES += " python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libuuid1 libncursesw6 libtinfo6"
PACKAGES += " libreadline8 libcrypt1 libdb5.3"
OURS = ("libgomp", "libdnnl", "libpng", "libjpeg", "libwebp", "libgif", "libutf8proc", "libpcre2", "libsqlite3")


def unpack_system(root, downloads):
    subprocess.run(["apt-get", "download", "-qq", *PACKAGES.split()], check=True, cwd=downloads)
    for package in sorted(downloads.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    (root / "tmp").mkdir(exist_ok=True)
    there = [p.name for p in root.rglob("*.so*") if p.name.startswith(OURS)]
    if there:
        sys.exit(f"bare-root: the system has {there[0]} itself, so that the wheel would not be asked for it")


def put_python(root):
    """The Python of that system: Debian's, or a copy of the one that runs this, which Debian has no package of."""
    if sys.version_info[:2] == (3, 11):
        return "/usr/bin/python3.11"
    prefix = pathlib.Path(sys.base_prefix)
    without = shutil.ignore_patterns("test", "__pycache__", "site-packages", "*.a", "_tkinter*", "share", "include")
    shutil.copytree(prefix, root / prefix.relative_to("/"), symlinks=True, ignore=without)
    return f"{prefix}/bin/python3.{sys.version_info[1]}"


def readme_program():
    """The first program of the README that makes a picture, as it stands."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    return next(b for b in blocks if "emoji-128" in b)


def main(wheel):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        root, downloads = folder / "root", folder / "packages"
        root.mkdir()
        downloads.mkdir()
        downloads.chmod(0o777)  # apt's own user writes here
        folder.chmod(0o755)
        unpack_system(root, downloads)
        python = put_python(root)
        site = root / "site"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", site]
        subprocess.run([*pip, wheel.resolve()], check=True)
        (root / "program.py").write_text(readme_program())
        chroot = shutil.which("chroot") or "/usr/sbin/chroot"
        clean = {"PATH": "/usr/bin:/bin", "PYTHONPATH": "/site", "HOME": "/tmp", "LANG": "C.UTF-8"}
        subprocess.run([chroot, root, python, "/program.py"], check=True, env=clean)
        picture = root / "apple.png"
        if not picture.exists() or picture.read_bytes()[:8] != b"\x89PNG\r\n\x1a\n":
            sys.exit("bare-root: the README's program made no apple.png")
        # Without /proc the loader does not find out where a program lies, and is told.
        told = clean | {"LD_ORIGIN_PATH": "/site/scaffolding/bin"}
        subprocess.run([chroot, root, python, "/site/bin/scaffolding", "version"], check=True, env=told)
        serve = [chroot, root, python, "/site/bin/scaffolding", "serve", "--help"]
        if "--port" not in subprocess.run(serve, check=True, env=told, capture_output=True, text=True).stdout:
            sys.exit("bare-root: the wheel's program has no server")
        by, size = pathlib.Path(python).name, picture.stat().st_size
        print(f"bare-root: {wheel.name} made the README's picture of {size} bytes by {by}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if os.geteuid() != 0:
        sys.exit("bare-root: chroot needs root")
    main(pathlib.Path(sys.argv[1]))
