// What the stand-in for cuDNN keeps of a descriptor, and what it computes with it. For one process;
// calls hold the lock of cudnn.cpp.
#pragma once
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "scaffolding/backend/cuda/cudnn_api.h"

namespace cudnn_emulator {

// The names of the interface; no code comes with them.
using sf::cuda::cudnn::Attribute;
using sf::cuda::cudnn::DataType;
using sf::cuda::cudnn::HeuristicMode;
using sf::cuda::cudnn::Kind;
using sf::cuda::cudnn::kSuccess;
using sf::cuda::cudnn::Note;
using sf::cuda::cudnn::Pointwise;
using sf::cuda::cudnn::RawDescriptor;
using sf::cuda::cudnn::ReduceOp;
using sf::cuda::cudnn::Status;
using sf::cuda::cudnn::Type;

constexpr Status kBadParameter = 2000, kMisaligned = 2003, kNotFinalized = 2004, kShapeMismatch = 2008,
                 kBadAttributeType = 2010, kNotSupported = 3000, kNotSupportedPattern = 3001, kNotSupportedType = 3003,
                 kNotSupportedSharedMemory = 3010, kExecutionFailed = 5000;

using Dims = std::vector<int64_t>;

inline size_t bytes_of(Type t) {
  switch (t) {
    case Type::Boolean:
    case Type::Char: return 1;
    case Type::Int64:
    case Type::Double:
    case Type::Handle:
    case Type::VoidPointer:
    case Type::Descriptor: return 8;
    default: return 4;
  }
}

class Object {
 public:
  explicit Object(Kind k) : kind(k) {}
  const Kind kind;
  bool finalized = false;
  bool unloaded = false;  // of a plan: destroyed

  void keep(Attribute a, Type type, int64_t count, const void* values) {
    values_[a] = {type, count, std::string(static_cast<const char*>(values), bytes_of(type) * size_t(count)), {}};
  }
  void keep(Attribute a, std::shared_ptr<Object> part) {
    auto& v = values_[a];
    v.type = Type::Descriptor, ++v.count;
    v.parts.push_back(std::move(part));
  }
  void forget(Attribute a) { values_[a] = {Type::Descriptor, 0, {}, {}}; }
  bool has(Attribute a) const { return values_.count(a) > 0; }
  Type type(Attribute a) const { return values_.at(a).type; }
  int64_t count(Attribute a) const { return values_.at(a).count; }
  const void* bytes(Attribute a) const { return values_.at(a).bytes.data(); }
  std::shared_ptr<Object> one(Attribute a) const { return has(a) ? values_.at(a).parts.at(0) : nullptr; }
  std::vector<std::shared_ptr<Object>> all(Attribute a) const {
    return has(a) ? values_.at(a).parts : std::vector<std::shared_ptr<Object>>();
  }
  Dims integers(Attribute a) const {
    Dims d(size_t(count(a)));
    std::memcpy(d.data(), bytes(a), sizeof(int64_t) * d.size());
    return d;
  }
  int64_t integer(Attribute a) const { return integers(a).at(0); }
  int enumerator(Attribute a) const {
    int v = 0;
    std::memcpy(&v, bytes(a), sizeof v);
    return v;
  }
  bool flag(Attribute a) const { return has(a) && *static_cast<const char*>(bytes(a)) != 0; }
  // f(attribute, type, count, bytes, parts)
  template <typename F> void each(F f) const {
    for (auto& [a, v] : values_) f(a, v.type, v.count, v.bytes, v.parts);
  }
  // Of an operation: the tensors that it reads and writes.
  std::vector<std::shared_ptr<Object>> tensors() const {
    std::vector<std::shared_ptr<Object>> all;
    for (auto& [a, v] : values_)
      for (auto& part : v.parts)
        if (part->kind == Kind::Tensor) all.push_back(part);
    return all;
  }

 private:
  struct Value {
    Type type = Type::Descriptor;
    int64_t count = 0;
    std::string bytes;
    std::vector<std::shared_ptr<Object>> parts;
  };
  std::map<Attribute, Value> values_;
};

Status refuse(Status s, const std::string& why);
Status check_shapes(const Object& o);  // of a tensor, a convolution or an operation with all its attributes
Status check_graph(const Object& graph);
std::string text_of(const std::shared_ptr<Object>& config);  // of an engine's configuration
std::shared_ptr<Object> config_of(const std::string& text);  // null where it is no such text
// Runs every operation of a graph. memory: of the tensors in memory, by id; numbers: those by value. tf32: float32
// operands of products are rounded.
void compute(const Object& graph, const std::map<int64_t, void*>& memory, const std::map<int64_t, float>& numbers,
             bool tf32);

}  // namespace cudnn_emulator
