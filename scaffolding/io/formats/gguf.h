// GGUF files of llama.cpp and stable-diffusion.cpp (ggml/docs/gguf.md), versions 2 and 3, read only.
// The constructor checks all metadata and every tensor's place before anything is allocated for them.
// const use is thread-safe.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scaffolding/io/file.h"
#include "scaffolding/io/object.h"

namespace sf::io {

struct GgufFormat {
  std::string_view name;  // "Q4_K"
  uint32_t id;
  uint32_t block;  // elements
  uint32_t bytes;  // of a block
  bool readable;   // what this version converts
};
const GgufFormat* find_gguf_format(uint32_t id);  // null for one that is not known

struct GgufEntry {
  std::string name;
  const GgufFormat* format = nullptr;
  Shape shape;          // PyTorch's order: the file lists the fastest dimension first
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

 private:
  struct Content;
  std::shared_ptr<const Content> content_;
};

// Blocks of one of the readable quantised formats as numbers: blocks * format.block of them.
void dequantize_gguf(const GgufFormat& format, const std::byte* data, int64_t blocks, Tensor& out);

}  // namespace sf::io
