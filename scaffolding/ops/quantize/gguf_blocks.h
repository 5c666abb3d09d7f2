// The formats in blocks, as kernels are told which: see gguf_formats.def.
#pragma once
#include <cstdint>

namespace sf {

// Those that are decoded and encoded here; the numbers are ggml's.
enum class GgufBlocks : uint32_t {
#define SF_GGUF_PLAIN(NAME, id, bytes, dtype)
#define SF_GGUF_BLOCKS(NAME, id, block, bytes) NAME = id,
#define SF_GGUF_UNREAD(NAME, id, block, bytes)
#include "scaffolding/ops/quantize/gguf_formats.def"
};

}  // namespace sf
