"""The mark of tests of .mp4, .mov, .mkv and .webm, which libav writes."""

import os

import pytest

import scaffolding as sf

# SF_TEST_INSTALLED: all that Debian has is there, and the absence of libav a fault
needs_libav = pytest.mark.skipif(
    not sf.io.can_write_video("a.mp4") and not os.environ.get("SF_TEST_INSTALLED"),
    reason="libscaffolding_video.so is not built: no libav",
)
