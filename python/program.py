#!python
"""`scaffolding` of a wheel: becomes the program beside the package, which is found without importing it."""

import importlib.util
import os
import sys

package = importlib.util.find_spec("scaffolding")
for folder in package.submodule_search_locations if package else []:
    program = os.path.join(folder, "bin", "scaffolding")
    if os.path.exists(program):
        os.execv(program, [sys.argv[0], *sys.argv[1:]])
sys.exit("scaffolding: this installation of the package has no program; install it again")
