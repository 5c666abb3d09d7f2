// safetensors files: named tensors behind a JSON header (github.com/huggingface/safetensors, README "Format").
// A file is mapped, not read: tensors borrow its pages and keep the mapping alive, and writing into one changes memory,
// never the file. The file must not be truncated while tensors of it live (the system would end the process).
// A SafetensorsFile may be used from several threads at once.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scaffolding/core/tensor.h"
#include "scaffolding/io/file.h"

namespace sf::io {

using Metadata = std::map<std::string, std::string>;

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as the file spells it: "F32", "BF16"
  Shape shape;
  uint64_t begin = 0;  // bytes [begin, end) of the data that follows the header
  uint64_t end = 0;
};

// A file opened for reading. The constructor checks the whole header before it allocates anything of a size the header
// names: its length, the JSON (depth, duplicate names, types), dtypes, shapes, and that the tensors tile the data
// without holes, overlaps or a rest. Throws RuntimeError when the file cannot be read, ValueError when it is malformed.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  explicit SafetensorsFile(const Bytes& file);

  const std::vector<SafetensorsEntry>& entries() const;  // in the order of their data
  const Metadata& metadata() const;
  bool contains(std::string_view name) const;
  const SafetensorsEntry& entry(std::string_view name) const;  // ValueError for a name the file does not have

  // The tensor, without a copy. Copied are: data that is not aligned for its dtype, BOOL bytes other than 0 and 1, and
  // unsigned types that have no dtype here: U16 comes as int32, U32 as int64, U64 as int64 modulo 2^64.
  // NotSupported for the format's 4- and 6-bit, E8M0 and complex types.
  Tensor get(std::string_view name) const;

 private:
  struct Content;
  std::shared_ptr<const Content> content_;
};

std::map<std::string, Tensor> load_safetensors(const std::string& path);
std::optional<DType> safetensors_dtype(std::string_view spelled);  // "F16": float16; absent where there is none here

// Writes the tensors (from any device, any strides) to a temporary file beside `path`, syncs it and renames it, so that
// `path` holds the old file or the whole new one. Equal content gives equal bytes: data lies by item size, then name.
void save_safetensors(const std::map<std::string, Tensor>& tensors, const std::string& path,
                      const Metadata& metadata = {});
void save_safetensors(const std::map<std::string, Tensor>& tensors, Sink& sink, const Metadata& metadata = {});

}  // namespace sf::io
