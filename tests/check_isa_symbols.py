"""Files compiled for an instruction set must share no symbol with the rest of the program.

    python tests/check_isa_symbols.py build

An inline function or template that is compiled with -mavx2 in one file and without in another is one weak symbol to the
linker, which keeps either: a processor without AVX2 may then run the wrong one. Everything that such an object file
defines for others must therefore name its own namespace, sf::<isa>.
"""

import pathlib
import re
import subprocess
import sys


def leaks(build):
    """(object file, symbol) pairs, and the number of object files seen."""
    found, objects = [], 0
    for folder in sorted(build.glob("CMakeFiles/sf_cpu_*.dir")):
        isa = folder.name.removeprefix("sf_cpu_").removesuffix(".dir")
        # a template argument of that namespace makes a symbol its own, too
        own = re.compile(rf"(2sf|S_){len(isa)}{isa}")
        paths = sorted(folder.rglob("*.o"))
        objects += len(paths)
        command = ["nm", "--print-file-name", "--extern-only", "--defined-only", *paths]  # a process for each took 10 s
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines() if paths else []
        for path, line in (line.rsplit(":", 1) for line in lines):
            kind, symbol = line.split()[-2:]
            shared = kind.isupper() or kind in "uvw"
            if shared and not own.search(symbol) and not symbol.startswith(("__odr_asan", "DW.ref", ".L")):
                found.append((pathlib.Path(path), symbol))
    return found, objects


def main():
    found, objects = leaks(pathlib.Path(sys.argv[1]))
    for path, symbol in found:
        print(f"{path}: {subprocess.run(['c++filt', symbol], capture_output=True, text=True).stdout.strip() or symbol}")
    print(f"{len(found)} shared symbols in {objects} object files")
    sys.exit(1 if found or not objects else 0)


if __name__ == "__main__":
    main()
