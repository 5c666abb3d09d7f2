// quantize_: layers of a model in place, so that their weights stay in few bits. What changes a module is not
// thread-safe.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "scaffolding/nn/module.h"

namespace sf::nn {

// "*time_embedding*": "" keeps a layer in its dtype; another format's name gives it that. The last rule that fits a
// layer's name counts. * stands for any text.
struct QuantizeRule {
  std::string pattern, format;
};
// What all known models need wide: time and other conditions, the first and last layers, positions, tables of tokens,
// autoencoders; under the names of diffusers, LDM and stable-diffusion.cpp.
const std::vector<QuantizeRule>& wide_by_default();
// The format that the rules give a name; "" where it stays wide.
std::string quantized_format(const std::string& name, const std::string& format,
                             const std::vector<QuantizeRule>& rules);

struct QuantizeOptions {
  std::vector<QuantizeRule> rules = wide_by_default();  // after them yours
  bool convolutions = true;                             // of GGUF's formats; NF4 and float8 are for linear layers alone
};
struct QuantizedLayer {
  std::string name, type, format;  // format: what it got; rows that do not fit blocks of 256 get one of 32
  int64_t numbers = 0, bytes = 0;  // of the weight; bytes as it is stored now
  bool fell_back = false;
};
// Replaces Linear and Conv2d of a model (and what rules name explicitly: Embedding) by layers with quantised weights.
// format: one of GGUF's blocks ("q8_0", "Q4_K"), "nf4", "float8_e4m3fn" or "float8_e5m2". Layers that share a weight,
// or whose rows fit no blocks, stay. The dense weights are given up. ValueError where no layer is replaced.
std::vector<QuantizedLayer> quantize_(Module& model, const std::string& format, const QuantizeOptions& options = {});

// Whether its weight is stored in few bits.
bool is_quantized(const Module& m);

// Puts a layer with these blocks in the place of a Linear, Conv2d or Embedding that is one exactly, and lets its
// weight go. Null, and nothing changes, for another module, for shapes that the format's rows do not fit, or where
// something stands there already. bytes: uint8, all blocks of the weight. dtype: of the layer otherwise.
Module* put_gguf(Module& layer, const std::string& format, const Tensor& bytes, DType dtype);

}  // namespace sf::nn
