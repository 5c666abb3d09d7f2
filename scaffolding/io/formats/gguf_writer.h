// Writing GGUF files of version 3, which stable-diffusion.cpp, ComfyUI-GGUF, the gguf package and gguf.h read.
#pragma once
#include <map>
#include <string>

#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/quantize/gguf_format.h"

namespace sf::io {

// A tensor as a file stores it: numbers of a plain format, or a format's blocks as bytes. Of blocks, rows of the shape
// need not be whole blocks: such a tensor is written as rows that are, and its shape as ComfyUI-GGUF does in
// comfy.gguf.orig_shape.NAME.
struct GgufTensor {
  Tensor data;
  const GgufFormat* format = nullptr;
  Shape shape;
};
// A plain tensor; ValueError for a dtype that GGUF has no format for. Bool becomes I8.
GgufTensor plain_gguf(const std::string& name, const Tensor& t);

// Written beside and renamed. metadata: texts by key.
void save_gguf(const std::map<std::string, GgufTensor>& tensors, const std::string& path,
               const std::map<std::string, std::string>& metadata = {});

}  // namespace sf::io
