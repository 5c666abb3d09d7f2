// The formats that GGUF files store numbers in: names, sizes, and which of them are blocks that can be computed with.
// A new one is a line of gguf_formats.def. Constant; any thread.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "scaffolding/core/dtype.h"
#include "scaffolding/ops/quantize/gguf_blocks.h"

namespace sf {

struct GgufFormat {
  std::string_view name;             // "Q4_K"
  uint32_t id;                       // ggml's number, in files
  uint32_t block;                    // numbers in a block
  uint32_t bytes;                    // of a block
  std::optional<DType> plain;        // of numbers as they are
  std::optional<GgufBlocks> blocks;  // of those that are decoded and encoded
  bool readable() const { return plain || blocks; }
  double bits() const { return 8.0 * bytes / block; }  // of a number
};
const std::vector<GgufFormat>& gguf_formats();
const GgufFormat* find_gguf_format(uint32_t id);            // null for one that is not known
const GgufFormat* find_gguf_format(std::string_view name);  // in any case of letters: "q4_K"
// One of blocks by its name. ValueError that lists them, which begins with `who`.
const GgufFormat& gguf_blocks(const char* who, std::string_view name);
// The format for rows of so many numbers: this one, or where its blocks of 256 do not fit, the smallest in blocks of 32
// with no fewer bits; null where those do not fit either.
const GgufFormat* fitting_gguf_blocks(const GgufFormat& wanted, int64_t row);

}  // namespace sf
