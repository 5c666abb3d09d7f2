// quantize_: layers of a model in place, so that their weights stay in few bits. What changes a module is not
// thread-safe.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "scaffolding/nn/module.h"

namespace sf::nn {

// "*time_embedding*": "" keeps a layer in its dtype; another format's name gives it that. The last rule that fits a
// layer's name counts. * stands for any text. A rule is for weights of at most so many numbers.
struct QuantizeRule {
  std::string pattern, format;
  int64_t most = INT64_MAX;
};
// What all known models need wide: time and other conditions, the first and last layers, positions, tables of tokens,
// autoencoders; under the names of diffusers, LDM and stable-diffusion.cpp.
const std::vector<QuantizeRule>& wide_by_default();
// The format that the rules give a layer of that name, whose weight has so many numbers; "" where it stays wide.
std::string quantized_format(const std::string& name, int64_t numbers, const std::string& format,
                             const std::vector<QuantizeRule>& rules);
// The name as it is written: one of GGUF's blocks ("Q8_0", "Q4_K"; any case of letters), "nf4", "fp4", "int8",
// "float8_e4m3fn" or "float8_e5m2". ValueError, which begins with `who`, for another.
std::vector<std::string> quantized_formats();
std::string known_quantized_format(const char* who, const std::string& format);

struct QuantizeOptions {
  std::vector<QuantizeRule> rules = wide_by_default();  // after them yours
  bool convolutions = true;                             // of GGUF's formats, and of int8 with dynamic
  bool compress_statistics = true;                      // nf4, fp4: magnitudes of blocks in eight bits
  bool per_row = true;                                  // float8: a scale for each row, or one for all
  bool dynamic = false;  // the input is quantised too: float8, int8, GGUF's linear layers
};
// What a loader quantises weights to while it reads them (models/model_files.h).
struct QuantizeConfig {
  std::string format;
  QuantizeOptions options;

  // From one word: "q4_K"; "int8-dynamic", "q8_0-dynamic": with int8 activations. ValueError, which begins with `who`,
  // for another.
  static QuantizeConfig named(const char* who, const std::string& word);
};

// A layer that is to be replaced.
struct PlannedLayer {
  std::string name;
  Module* layer;
  std::string wanted, format;  // by the rules; what its rows fit
  Shape shape;                 // of its weight
};
// Linear and Conv2d of a model, and what rules name explicitly (Embedding), in their order. Layers that share a weight,
// stand in another's place, or whose rows fit no blocks, are left out. ValueError for an unknown format.
std::vector<PlannedLayer> plan_quantization(Module& model, const std::string& format,
                                            const QuantizeOptions& options = {});
// Puts a layer with this weight, in that format, in the place of one of a plan, and lets its own weight go. dtype: of
// the layer otherwise. Returns the new one.
Module* quantize_layer(Module& layer, const std::string& format, const Tensor& dense, DType dtype,
                       const QuantizeOptions& options = {});

struct QuantizedLayer {
  std::string name, type, format;  // format: what it got; rows that do not fit blocks of 256 get one of 32
  int64_t numbers = 0, bytes = 0;  // of the weight; bytes as it is stored now
  bool fell_back = false;
};
// Replaces the layers of a plan by ones with quantised weights. The dense weights are given up. ValueError where no
// layer is replaced.
std::vector<QuantizedLayer> quantize_(Module& model, const std::string& format, const QuantizeOptions& options = {});

// Whether its weight is stored in few bits.
bool is_quantized(const Module& m);
// The format of a quantised layer's weight, "" of another module.
std::string format_of(const Module& m);
// The numbers that a Linear, Conv2d or Embedding, quantised or not, multiplies with, in that dtype or, of a dense one,
// as they are. ValueError for another module.
Tensor dense_weight_of(const Module& m, std::optional<DType> dtype = kFloat32);

// Puts a layer with these blocks in the place of a Linear, Conv2d or Embedding that is one exactly, and lets its
// weight go. Null, and nothing changes, for another module, for shapes that the format's rows do not fit, or where
// something stands there already. bytes: uint8, all blocks of the weight. dtype: of the layer otherwise. dynamic: a
// linear layer's input becomes int8 too.
Module* put_gguf(Module& layer, const std::string& format, const Tensor& bytes, DType dtype, bool dynamic = false);
// The same for a Linear whose weight is float8 or int8 [out, in] times a scale, float32 [] or [out]. dynamic: the input
// is quantised too.
Module* put_scaled(Module& layer, const Tensor& weight, const Tensor& scale, DType dtype, bool dynamic = false);
// The same of a layer that is made already, with its bias.
Module* put_stored_layer(Module& layer, std::shared_ptr<Module> made, DType dtype);

}  // namespace sf::nn
