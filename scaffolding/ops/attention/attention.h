// Scaled dot-product attention without an n x n buffer.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// query[B.., Hq, Lq, D], key[B.., Hkv, Lk, D], value[B.., Hkv, Lk, Dv] -> [B.., Hq, Lq, Dv], as
// torch.nn.functional.scaled_dot_product_attention: attn_mask broadcasts to [B.., Hq, Lq, Lk]; bool (true attends) or
// floating (added to the scores); is_causal lets query i see keys up to i; scale defaults to 1 / sqrt(D). With
// enable_gqa Hq may be a multiple of Hkv. dropout_p > 0 drops attention weights, whatever mode a
// module is in: with numbers from the default generator, those torch draws on the CPU. It needs the n x n buffer.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask = {}, double dropout_p = 0, bool is_causal = false,
                                    std::optional<double> scale = {}, bool enable_gqa = false);

}  // namespace sf
