// GGUF files of llama.cpp and stable-diffusion.cpp (ggml/docs/gguf.md), versions 2 and 3; written by gguf_writer.h.
// The constructor checks all metadata and every tensor's place before anything is allocated for them.
// const use is thread-safe.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scaffolding/io/file.h"
#include "scaffolding/io/object.h"
#include "scaffolding/ops/quantize/gguf_format.h"

namespace sf::io {

struct GgufEntry {
  std::string name;
  const GgufFormat* format = nullptr;
  // PyTorch's order: the file lists the fastest dimension first. Where the metadata say that the tensor was reshaped so
  // that its rows are whole blocks (ComfyUI-GGUF's comfy.gguf.orig_shape.NAME), as it was before.
  Shape shape;
  uint64_t offset = 0;  // in the data
  uint64_t bytes = 0;
};

class GgufFile {
 public:
  // most_header: bytes of metadata and names; a longer header is a ValueError.
  explicit GgufFile(const Bytes& file, uint64_t most_header = UINT64_MAX);
  explicit GgufFile(const std::string& path);
  static bool recognises(const Bytes& file);
  int version() const;
  const std::vector<GgufEntry>& entries() const;
  bool contains(std::string_view name) const;
  const GgufEntry& entry(std::string_view name) const;  // ValueError for a name the file does not have
  Object metadata() const;  // a dict; made anew by each call, because vocabularies are large

  // Plain types (F32, F16, BF16, F64, I8 to I64) are borrowed and keep theirs; quantised ones are converted to `dtype`:
  // float32, float16 or bfloat16. NotSupported for the formats that are not read (IQ*, TQ*, MXFP4).
  Tensor get(std::string_view name, DType dtype = kFloat32) const;
  // The bytes of a tensor as they lie, uint8 [entry(name).bytes], borrowed.
  Tensor stored(std::string_view name) const;

 private:
  struct Content;
  std::shared_ptr<const Content> content_;
};

}  // namespace sf::io
