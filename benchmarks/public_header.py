"""What `#include "scaffolding/scaffolding.h"`, models.h and diffusion.h cost a source file, beside the standard headers
under the first.

    python benchmarks/public_header.py [--compiler g++] [--rounds 5]

Seconds are the compiler's own (user), the least of the rounds, of -fsyntax-only and of -c. "usual": eight standard
headers that most programs include anyway; "standard": all that scaffolding.h includes. Lines are preprocessed ones.
Functions are those that GCC has to go through: counts do not depend on the machine, and most of the time goes there.
"""

import argparse
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import lint  # noqa: E402

USUAL = "functional map memory optional string tuple variant vector".split()


def sources():
    """Texts by name."""
    headers = [ROOT / h for h in lint.public_headers(set(lint.tracked()), ["scaffolding/scaffolding.h"])]
    standard = sorted({h for p in headers for h in re.findall(r"^#include <([a-z_]+)>", p.read_text(), re.M)})
    return {
        "usual": "".join(f"#include <{h}>\n" for h in USUAL),
        "standard": "".join(f"#include <{h}>\n" for h in standard),
        "scaffolding.h": '#include "scaffolding/scaffolding.h"\n',
        "models.h": '#include "scaffolding/models/models.h"\n',
        "diffusion.h": '#include "scaffolding/diffusion/diffusion.h"\n',
    }


def command(compiler, *flags):
    return [compiler, "-std=c++20", f"-I{ROOT}", *flags, "-x", "c++", "-"]


def seconds(compiler, text, *flags):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(command(compiler, *flags), input=text, text=True, check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def lines(compiler, text):
    return subprocess.run(
        command(compiler, "-E"), input=text, text=True, check=True, stdout=subprocess.PIPE
    ).stdout.count("\n")


def functions(compiler, text):
    """None where the compiler is not GCC."""
    with tempfile.TemporaryDirectory() as folder:
        dump = pathlib.Path(folder) / "functions"
        made = subprocess.run(
            command(compiler, "-fsyntax-only", f"-fdump-tree-original={dump}"),
            input=text,
            text=True,
            stderr=subprocess.DEVNULL,
        )
        return dump.read_text().count("\n;; Function ") if made.returncode == 0 and dump.exists() else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default=os.environ.get("CXX", "c++"))
    parser.add_argument("--rounds", type=int, default=5)
    o = parser.parse_args()
    print(f"{'':14}{'syntax s':>10}{'-c s':>8}{'lines':>9}{'functions':>11}")
    for name, text in sources().items():
        times = [
            min(seconds(o.compiler, text, *flags) for _ in range(o.rounds))
            for flags in (["-fsyntax-only"], ["-c", "-o", os.devnull])
        ]
        count = functions(o.compiler, text)
        print(f"{name:14}{times[0]:10.2f}{times[1]:8.2f}{lines(o.compiler, text):9}{count or '-':>11}", flush=True)


if __name__ == "__main__":
    main()
