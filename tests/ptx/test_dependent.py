"""Kernels that may start before the one in front of them has ended: all threads wait before they touch memory."""

import re

import edits
import numpy as np
import pytest
from machine import Machine
from program import Fault
from test_hopper import linear
from test_ptx import attention, group_norm

WAIT = r"griddepcontrol\.wait"
# some warps, or a thread, leave in front of the wait
LEAVES = "{{ .reg .pred q; .reg .b32 t; mov.u32 t, %tid.x; setp.ge.u32 q, t, {}; @q ret; }}\ngriddepcontrol.wait;"
EARLY, NEVER = "before the wait for the grid before", "never waited for the grid before"


def everywhere(pattern, to):
    return lambda text: re.sub(rf"{pattern}[^;]*;", to, text)


def kept(text, **how):
    return group_norm(text, kept=60000, space=590, **how)


BROKEN = {
    "group_norm without a wait": ("group_norm", group_norm, everywhere(WAIT, ""), EARLY),
    "kept group_norm without a wait": ("group_norm", kept, everywhere(WAIT, ""), EARLY),  # cp.async
    "group_norm, last warp": ("group_norm", group_norm, everywhere(WAIT, LEAVES.format(96)), NEVER),
    "group_norm, last thread": ("group_norm", group_norm, everywhere(WAIT, LEAVES.format(127)), NEVER),
    "attention without a wait": ("attention", attention, everywhere(WAIT, ""), EARLY),
    "a product without a wait": ("wgmma_product", linear, everywhere(WAIT, ""), EARLY),  # the copy engine
    "a product, last thread": ("wgmma_product", linear, everywhere(WAIT, LEAVES.format(383)), NEVER),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_code_is_found(ptx, name):
    edits.check(ptx, *BROKEN[name])


@pytest.mark.parametrize(
    "unit", ["group_norm", "wgmma_product", "attention", "attention_wgmma", "attention_backward", "row_norm", "fp8"]
)
def test_each_kernel_that_takes_a_previous_grid_waits_and_lets_the_next_one_come(ptx, unit):
    kernels = [k for k in ptx[unit].split(".entry ")[1:] if "PreviousGrid" in k.split("(")[0]]
    assert kernels
    for kernel in kernels:
        body = re.sub(r"\s+", " ", kernel)
        assert body.count("griddepcontrol.wait;") == 1
        assert "griddepcontrol.wait; griddepcontrol.launch_dependents;" in body, body[:200]


def test_an_ordinary_launch_needs_no_wait(ptx):
    class Ordinary(Machine):
        def launch(self, *args, **how):
            super().launch(*args, dependent=False, **how)

    text = everywhere(WAIT, "")(ptx["group_norm"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("test_ptx.Machine", Ordinary)
        assert np.max(group_norm(text)) < 0.02


def snippet(body, dependent):
    text = (
        """.visible .entry snippet(
        .param .u64 snippet_param_0
        )
        { .reg .pred %p<4>; .reg .b32 %r<4>; .reg .b64 %rd<4>; .shared .align 8 .b8 words[256];
        ld.param.u64 %rd1, [snippet_param_0]; mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 7; """
        + body.replace("wait", "griddepcontrol.wait").replace("next", "griddepcontrol.launch_dependents")
        + " ret; }"
    )
    m = Machine(text, (1 << 22) + 4096)
    m.launch("snippet", 1, 32, [m.put(np.zeros(32, "u4"))], dependent=dependent)


@pytest.mark.parametrize(
    "body, said",
    [("wait; next; ld.global.u32 %r1, [%rd1];", None), ("next; wait; st.global.u32 [%rd1], %r0;", None),
     ("wait; wait; next; next;", None), ("st.shared.u32 [words], %r0; wait;", None),  # shared memory is its own
     ("ld.global.u32 %r1, [%rd1]; wait;", EARLY), ("st.global.u32 [%rd1], %r0; wait;", EARLY),
     ("next; ld.global.u32 %r1, [%rd1]; wait;", EARLY), ("ld.u32 %r1, [%rd1]; wait;", EARLY),
     ("@%p0 wait; ld.global.u32 %r1, [%rd1]; wait;", EARLY), ("@%p0 wait; @%p0 ld.global.u32 %r1, [%rd1]; wait;", None),
     ("", NEVER), ("next;", NEVER), ("@%p0 wait;", NEVER), ("@%p0 bra $end; wait; $end:", NEVER)],
)  # fmt: skip
def test_snippets(body, said):
    snippet(body, dependent=False)
    if said is None:
        return snippet(body, dependent=True)
    with pytest.raises(Fault, match=said):
        snippet(body, dependent=True)


def test_another_action_is_unknown():
    with pytest.raises(Fault, match="unknown"):
        snippet("griddepcontrol.launch;", dependent=False)
