#include <algorithm>
#include <bit>

#include "scaffolding/models/adapters/lora_file.h"

namespace sf::models {

namespace {

// NaN and infinities are the values whose exponent's bits are all ones. No early exit: the loop is vectorised.
template <class Bits> bool any_has_all_of(const void* data, int64_t n, Bits exponent) {
  auto* bits = static_cast<const Bits*>(data);
  Bits found = 0;
  for (int64_t i = 0; i < n; ++i) found |= Bits((bits[i] & exponent) == exponent);
  return found != 0;
}

void check(const char* part, const Tensor& t, const LoraLayer& layer, const std::string& path) {
  SF_CHECK(!t.defined() || all_finite(t), path, ": '", layer.stem, "' has NaN or infinity in its ", part,
           " weight, so the LoRA is damaged; nothing of it was loaded");
}

}  // namespace

bool all_finite(const Tensor& t) {
  if (t.numel() == 0) return true;
  const Tensor flat = t.is_contiguous() ? t : t.contiguous();
  switch (flat.dtype()) {
    case kFloat64: return !any_has_all_of(flat.data_ptr(), flat.numel(), uint64_t(0x7ff0) << 48);
    case kFloat32: return !any_has_all_of(flat.data_ptr(), flat.numel(), uint32_t(0x7f800000));
    case kBFloat16: return !any_has_all_of(flat.data_ptr(), flat.numel(), uint16_t(0x7f80));
    case kFloat16: return !any_has_all_of(flat.data_ptr(), flat.numel(), uint16_t(0x7c00));
    default: return all_finite(flat.to(kFloat32));  // a byte each
  }
}

void check_lora_values(const LoraLayer& layer, const std::string& path) {
  check("down", layer.down, layer, path);
  check("mid", layer.mid, layer, path);
  check("up", layer.up, layer, path);
}

}  // namespace sf::models
