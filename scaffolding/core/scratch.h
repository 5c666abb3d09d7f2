// scratch: per-thread working memory for CPU kernels, so that a kernel call costs no malloc once it is warm.
// Each thread owns its buffers; they grow to the largest request seen and are freed when the thread ends or trims.
// Any thread may call; a buffer must be used by other threads only while its owner waits for them.
#pragma once
#include <cstddef>

namespace sf {

inline constexpr int kScratchSlots = 16;

// At least `bytes` bytes, 64-byte aligned, contents undefined; never null. Valid until the same thread asks for the
// same slot again: a kernel gives each of its buffers its own slot (0 <= slot < kScratchSlots) and asks once per call.
// Slots 0..7 are a kernel's own; convolutions nest matrix products (0..7) and take 8..15 for themselves. Throws
// RuntimeError when the memory is not there. Declared without inline code on purpose:
// files compiled for an instruction set call it.
void* scratch(size_t bytes, int slot);

// Frees the calling thread's buffers and says how many bytes that were. For memory reports and after one huge call.
size_t trim_scratch();

}  // namespace sf
