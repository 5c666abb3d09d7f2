"""Programmatic dependent launches after NVIDIA's PTX ISA (griddepcontrol) and the CUDA programming guide.

A grid that is launched so may run while the one in front of it still does. What that one writes may be read, and what
it reads may be written, behind griddepcontrol.wait alone, by the threads that have waited. A grid of which some threads
never wait is a fault too: the guide orders a grid behind the one in front of it by its wait alone, and here each thread
answers for itself.
"""

import numpy as np
from hopper import HopperWarp
from program import Fault


class DependentWarp(HopperWarp):
    def __init__(self, machine, *args):
        super().__init__(machine, *args)
        self.early = np.full(32, machine.dependent)  # have not waited

    def do_griddepcontrol(self, words):
        if self.op == "griddepcontrol.wait":
            self.early = self.early & ~self.on
        elif self.op != "griddepcontrol.launch_dependents":  # which only lets the next grid come
            self.unknown()

    def do_ret(self, words):
        if (self.early & self.on).any():
            raise Fault("a thread ends that never waited for the grid before")
        super().do_ret(words)

    do_exit = do_ret

    def check_early(self, idx):
        """Of bytes: tensors, not parameters or what came with the program."""
        if (self.early & self.on).any():
            low, high = self.m.given
            if ((idx >= self.m.loaded) & ((idx < low) | (idx >= high))).any():
                raise Fault("global memory is touched before the wait for the grid before")

    def copy_box(self, *args):
        self.check_early(np.array([self.m.loaded]))
        super().copy_box(*args)
