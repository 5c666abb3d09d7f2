#include "scaffolding/io/formats/gguf_writer.h"

#include "scaffolding/core/error.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/tensor_bytes.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::io {

namespace {

constexpr uint32_t kTypeUint32 = 4, kTypeText = 8, kTypeList = 9, kTypeInt32 = 5;
constexpr uint64_t kDataAlignment = 32;  // of tensors in the data
constexpr int64_t kMostDims = 4;         // ggml's

template <class T> void put_value(std::string& to, T v) { to.append(reinterpret_cast<const char*>(&v), sizeof v); }
void put_string(std::string& to, const std::string& s) {
  put_value(to, uint64_t(s.size()));
  to += s;
}

// The shape as the file has it.
Shape stored_shape(const std::string& name, const GgufTensor& t) {
  const int64_t block = t.format->block, n = numel(t.shape);
  const bool fits = t.shape.size() <= kMostDims && (block == 1 || (!t.shape.empty() && t.shape.back() % block == 0));
  if (fits) return t.shape;
  SF_CHECK(n % block == 0, "save_gguf: '", name, "' of ", t.shape, " is not whole blocks of ", block);
  const int64_t row = block == 1 ? 1 : n % 256 == 0 ? 256 : block;
  return {n / row, row};
}

}  // namespace

GgufTensor plain_gguf(const std::string& name, const Tensor& t) {
  Tensor data = t.dtype() == kBool ? to_dtype(t, kInt8) : t;
  for (auto& f : gguf_formats())
    if (f.plain == data.dtype()) return {data, &f, t.shape()};
  fail("save_gguf: '", name, "' is ", t.dtype(), ", which GGUF files cannot hold");
}

void save_gguf(const std::map<std::string, GgufTensor>& tensors, const std::string& path,
               const std::map<std::string, std::string>& metadata) {
  std::string values, infos;
  uint64_t count = 2, at = 0;
  put_string(values, "general.architecture");
  put_value(values, kTypeText);
  put_string(values, "diffusion");
  put_string(values, "general.quantization_version");
  put_value(values, kTypeUint32);
  put_value(values, uint32_t(2));
  for (auto& [key, text] : metadata) {
    put_string(values, key);
    put_value(values, kTypeText);
    put_string(values, text);
    ++count;
  }
  for (auto& [name, t] : tensors) {
    SF_CHECK_AS(RuntimeError, !t.data.device().is_meta(), "save_gguf: '", name,
                "' is on the meta device and has no bytes");
    const Shape shape = stored_shape(name, t);
    const uint64_t bytes = uint64_t(numel(shape)) / t.format->block * t.format->bytes;
    SF_CHECK(t.data.nbytes() == bytes, "save_gguf: '", name, "' of ", t.shape, " needs ", bytes, " bytes as ",
             std::string(t.format->name), ", got ", t.data.nbytes());
    if (shape != t.shape) {
      put_string(values, "comfy.gguf.orig_shape." + name);
      put_value(values, kTypeList);
      put_value(values, kTypeInt32);
      put_value(values, uint64_t(t.shape.size()));
      for (int64_t size : t.shape) {
        SF_CHECK(size <= INT32_MAX, "save_gguf: '", name, "' of ", t.shape, " has a size over 2^31");
        put_value(values, int32_t(size));
      }
      ++count;
    }
    put_string(infos, name);
    put_value(infos, uint32_t(shape.size()));
    for (int64_t i = shape.size() - 1; i >= 0; --i) put_value(infos, uint64_t(shape[i]));
    put_value(infos, t.format->id);
    put_value(infos, at);
    at += (bytes + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
  }
  std::string header = "GGUF";
  put_value(header, uint32_t(3));
  put_value(header, uint64_t(tensors.size()));
  put_value(header, count);
  header += values + infos;
  header.resize((header.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment, '\0');
  ReplacingFile file(path);
  file.write(header.data(), header.size());
  for (auto& [name, t] : tensors) {  // one at a time: no second copy of a whole model
    write_tensor(file, t.data);
    const char zeros[kDataAlignment] = {};
    file.write(zeros, size_t((kDataAlignment - t.data.nbytes() % kDataAlignment) % kDataAlignment));
  }
  file.commit();
}

}  // namespace sf::io
