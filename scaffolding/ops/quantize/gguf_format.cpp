#include "scaffolding/ops/quantize/gguf_format.h"

#include <algorithm>
#include <string>

#include "scaffolding/core/error.h"

namespace sf {

const std::vector<GgufFormat>& gguf_formats() {
  static const std::vector<GgufFormat> all = {
#define SF_GGUF_PLAIN(NAME, id, bytes, dtype) {#NAME, id, 1, bytes, dtype, {}},
#define SF_GGUF_BLOCKS(NAME, id, block, bytes) {#NAME, id, block, bytes, {}, GgufBlocks::NAME},
#define SF_GGUF_UNREAD(NAME, id, block, bytes) {#NAME, id, block, bytes, {}, {}},
#include "scaffolding/ops/quantize/gguf_formats.def"
  };
  return all;
}

const GgufFormat* find_gguf_format(uint32_t id) {
  for (auto& f : gguf_formats())
    if (f.id == id) return &f;
  return nullptr;
}

const GgufFormat* find_gguf_format(std::string_view name) {
  auto upper = [](char c) { return c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c; };
  for (auto& f : gguf_formats())
    if (std::equal(name.begin(), name.end(), f.name.begin(), f.name.end(),
                   [&](char a, char b) { return upper(a) == upper(b); }))
      return &f;
  return nullptr;
}

const GgufFormat& gguf_blocks(const char* who, std::string_view name) {
  const GgufFormat* found = find_gguf_format(name);
  if (found && found->blocks) return *found;
  std::string known;
  for (auto& f : gguf_formats())
    if (f.blocks) known += (known.empty() ? "" : ", ") + std::string(f.name);
  fail(who, ": format must be one of ", known, ", got '", std::string(name), "'");
}

const GgufFormat* fitting_gguf_blocks(const GgufFormat& wanted, int64_t row) {
  if (row % wanted.block == 0) return &wanted;
  const GgufFormat* best = nullptr;
  for (auto& f : gguf_formats())
    if (f.blocks && f.block < wanted.block && row % f.block == 0 && f.bits() >= wanted.bits() &&
        (!best || f.bits() < best->bits()))
      best = &f;
  return best;
}

}  // namespace sf
