#include "scaffolding/io/formats/gguf.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "scaffolding/io/byte_reader.h"
#include "scaffolding/io/tensor_bytes.h"

namespace sf::io {

namespace {

// ggml.h's enum ggml_type; block and bytes from ggml-common.h.
constexpr GgufFormat kFormats[] = {
    {"F32", 0, 1, 4, true},          {"F16", 1, 1, 2, true},          {"Q4_0", 2, 32, 18, true},
    {"Q4_1", 3, 32, 20, true},       {"Q5_0", 6, 32, 22, true},       {"Q5_1", 7, 32, 24, true},
    {"Q8_0", 8, 32, 34, true},       {"Q8_1", 9, 32, 36, false},      {"Q2_K", 10, 256, 84, true},
    {"Q3_K", 11, 256, 110, true},    {"Q4_K", 12, 256, 144, true},    {"Q5_K", 13, 256, 176, true},
    {"Q6_K", 14, 256, 210, true},    {"Q8_K", 15, 256, 292, false},   {"IQ2_XXS", 16, 256, 66, false},
    {"IQ2_XS", 17, 256, 74, false},  {"IQ3_XXS", 18, 256, 98, false}, {"IQ1_S", 19, 256, 50, false},
    {"IQ4_NL", 20, 32, 18, false},   {"IQ3_S", 21, 256, 110, false},  {"IQ2_S", 22, 256, 82, false},
    {"IQ4_XS", 23, 256, 136, false}, {"I8", 24, 1, 1, true},          {"I16", 25, 1, 2, true},
    {"I32", 26, 1, 4, true},         {"I64", 27, 1, 8, true},         {"F64", 28, 1, 8, true},
    {"IQ1_M", 29, 256, 56, false},   {"BF16", 30, 1, 2, true},        {"TQ1_0", 34, 256, 54, false},
    {"TQ2_0", 35, 256, 66, false},   {"MXFP4", 39, 32, 17, false},
};

bool plain_dtype(const GgufFormat& f, DType& out) {
  constexpr std::pair<std::string_view, DType> plain[] = {{"F32", kFloat32}, {"F16", kFloat16}, {"BF16", kBFloat16},
                                                          {"F64", kFloat64}, {"I8", kInt8},     {"I16", kInt16},
                                                          {"I32", kInt32},   {"I64", kInt64}};
  for (auto& [name, t] : plain)
    if (name == f.name) return out = t, true;
  return false;
}

constexpr int kMaxArrayDepth = 4;
constexpr int kString = 8, kArray = 9;
constexpr uint64_t kSmallest[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};  // bytes of a value of each type, at least

std::string_view text_of(ByteReader& in) { return in.text(in.get<uint64_t>()); }

uint32_t type_of(ByteReader& in) {
  auto type = in.get<uint32_t>();
  SF_CHECK(type < std::size(kSmallest), in.name(), ": metadata have a value of the unknown type ", type);
  return type;
}

// The element type and count of an array; so many elements must fit in what is left.
std::pair<uint32_t, uint64_t> array_of(ByteReader& in, int depth) {
  SF_CHECK(depth < kMaxArrayDepth, in.name(), ": metadata arrays are nested more than ", kMaxArrayDepth, " deep");
  uint32_t type = type_of(in);
  auto count = in.get<uint64_t>();
  SF_CHECK(count <= in.left() / kSmallest[type], in.name(), ": a metadata array of ", count,
           " values does not fit in the file");
  return {type, count};
}

void skip_value(ByteReader& in, uint32_t type, int depth) {
  if (type == kString) return void(text_of(in));
  if (type != kArray) return in.skip(kSmallest[type]);
  auto [inner, count] = array_of(in, depth);
  if (inner != kString && inner != kArray) return in.skip(count * kSmallest[inner]);
  for (uint64_t i = 0; i < count; ++i) skip_value(in, inner, depth + 1);
}

Object value_of(ByteReader& in, uint32_t type) {
  switch (type) {
    case 0: return int64_t(in.get<uint8_t>());
    case 1: return int64_t(in.get<int8_t>());
    case 2: return int64_t(in.get<uint16_t>());
    case 3: return int64_t(in.get<int16_t>());
    case 4: return int64_t(in.get<uint32_t>());
    case 5: return int64_t(in.get<int32_t>());
    case 6: return double(in.get<float>());
    case 7: return in.get<uint8_t>() != 0;
    case kString: return text_of(in);
    case kArray: {
      auto [inner, count] = array_of(in, 0);
      Object list = Object::container(Object::List);
      list.items().reserve(size_t(count));
      for (uint64_t i = 0; i < count; ++i) list.items().push_back(value_of(in, inner));
      return list;
    }
    case 10: {
      auto v = in.get<uint64_t>();
      if (v <= uint64_t(INT64_MAX)) return int64_t(v);
      return Object(std::string(reinterpret_cast<const char*>(&v), 8) + '\0', Object::BigInt);
    }
    case 11: return in.get<int64_t>();
    default: return in.get<double>();
  }
}

}  // namespace

const GgufFormat* find_gguf_format(uint32_t id) {
  for (auto& f : kFormats)
    if (f.id == id) return &f;
  return nullptr;
}

struct GgufFile::Content {
  Bytes file, data;
  uint32_t version = 0;
  uint64_t values = 0, values_at = 0;
  std::vector<GgufEntry> entries;
  std::unordered_map<std::string_view, size_t> index;
};

bool GgufFile::recognises(const Bytes& file) { return file.size >= 4 && std::string_view(file.chars(), 4) == "GGUF"; }

GgufFile::GgufFile(const std::string& path) : GgufFile(Bytes::map(path)) {}

GgufFile::GgufFile(const Bytes& file, uint64_t most_header) {
  auto c = std::make_shared<Content>();
  c->file = file;
  const std::string& name = file.name;
  SF_CHECK(recognises(file), name, ": is no GGUF file: it does not begin with GGUF");
  ByteReader in(file.slice(0, std::min(file.size, most_header)), 4);
  c->version = in.get<uint32_t>();
  SF_CHECK_AS(NotSupported, c->version >= 2 && c->version <= 3, name, ": is a GGUF file of version ", c->version,
              "; versions 2 and 3 are read");
  auto tensors = in.get<uint64_t>();
  c->values = in.get<uint64_t>();
  SF_CHECK(c->values <= in.left() / 13 && tensors <= in.left() / 24, name, ": ", tensors, " tensors and ", c->values,
           " values do not fit in a file of ", file.size, " bytes");
  c->values_at = in.at();
  uint64_t alignment = 32;
  std::unordered_set<std::string_view> keys;
  for (uint64_t i = 0; i < c->values; ++i) {
    std::string_view key = text_of(in);
    SF_CHECK(keys.insert(key).second, name, ": metadata have the key '", std::string(key), "' twice");
    uint32_t type = type_of(in);
    if (key == "general.alignment") {
      SF_CHECK(type == 4, name, ": general.alignment must be a uint32");
      alignment = ByteReader(in).get<uint32_t>();
      SF_CHECK(alignment >= 8 && alignment <= (1u << 20) && (alignment & (alignment - 1)) == 0, name,
               ": general.alignment cannot be ", alignment);
    }
    skip_value(in, type, 0);
  }
  for (uint64_t i = 0; i < tensors; ++i) {
    GgufEntry e;
    e.name = text_of(in);
    auto dims = in.get<uint32_t>();
    SF_CHECK(dims <= kMaxDims, name, ": tensor '", e.name, "' has ", dims, " dimensions, at most ", kMaxDims,
             " are supported");
    for (uint32_t d = 0; d < dims; ++d) {
      auto size = in.get<uint64_t>();
      SF_CHECK(size <= uint64_t(INT64_MAX), name, ": tensor '", e.name, "' has a size over 2^63");
      e.shape.insert(0, int64_t(size));
    }
    auto type = in.get<uint32_t>();
    e.format = find_gguf_format(type);
    SF_CHECK_AS(NotSupported, e.format, name, ": tensor '", e.name, "' has the unknown type ", type);
    e.offset = in.get<uint64_t>();
    c->entries.push_back(std::move(e));
  }
  uint64_t data = (in.at() + alignment - 1) / alignment * alignment;
  SF_CHECK(data <= file.size || tensors == 0, name, ": the data would begin at byte ", data, " of a file of ",
           file.size);
  data = std::min(data, file.size);
  c->data = file.slice(data, file.size - data);
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (size_t i = 0; i < c->entries.size(); ++i) {
    GgufEntry& e = c->entries[i];
    std::string who = name + ": tensor '" + e.name + "'";
    int64_t row = e.shape.empty() ? 1 : e.shape.back();
    SF_CHECK(row % e.format->block == 0, who, " of ", std::string(e.format->name), " ", e.shape,
             " has rows that are no multiple of ", e.format->block);
    // In blocks first: a product in bits would overflow for sizes that are fine.
    Shape blocks = e.shape;
    if (!blocks.empty()) blocks[blocks.size() - 1] = row / e.format->block;
    e.bytes = checked_bytes(who, blocks, uint64_t(8) * e.format->bytes);
    checked_bytes(who, e.shape, 64);  // what it becomes
    SF_CHECK(e.offset % alignment == 0, who, " begins at byte ", e.offset, ", which is no multiple of ", alignment);
    SF_CHECK(e.offset <= c->data.size && e.bytes <= c->data.size - e.offset, who, " of ", e.bytes, " bytes at ",
             e.offset, " reaches beyond the ", c->data.size, " bytes of data");
    if (e.bytes) ranges.push_back({e.offset, e.offset + e.bytes});
    SF_CHECK(c->index.emplace(e.name, i).second, name, ": there are two tensors called '", e.name, "'");
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    SF_CHECK(ranges[i - 1].second <= ranges[i].first, name, ": two tensors overlap at byte ", ranges[i].first,
             " of the data");
  content_ = std::move(c);
}

int GgufFile::version() const { return int(content_->version); }
const std::vector<GgufEntry>& GgufFile::entries() const { return content_->entries; }
bool GgufFile::contains(std::string_view name) const { return content_->index.count(name) > 0; }
const GgufEntry& GgufFile::entry(std::string_view name) const {
  auto it = content_->index.find(name);
  SF_CHECK(it != content_->index.end(), content_->file.name, ": there is no tensor '", name, "'");
  return content_->entries[it->second];
}

Object GgufFile::metadata() const {
  ByteReader in(content_->file, content_->values_at);
  Object dict = Object::container(Object::Dict);
  for (uint64_t i = 0; i < content_->values; ++i) {
    dict.items().push_back(text_of(in));
    dict.items().push_back(value_of(in, type_of(in)));
  }
  return dict;
}

Tensor GgufFile::get(std::string_view name, DType dtype) const {
  const GgufEntry& e = entry(name);
  Bytes bytes = content_->data.slice(e.offset, e.bytes);
  DType plain;
  if (plain_dtype(*e.format, plain)) return tensor_of_bytes(bytes, e.shape, plain);
  SF_CHECK_AS(NotSupported, e.format->readable, content_->file.name, ": tensor '", e.name, "' is quantised as ",
              std::string(e.format->name), ", which is not read");
  SF_CHECK_AS(TypeError, dtype == kFloat32 || dtype == kFloat16 || dtype == kBFloat16,
              "gguf: quantised tensors become float32, float16 or bfloat16, got ", dtype);
  Tensor out = empty(e.shape, dtype);
  dequantize_gguf(*e.format, bytes.data, int64_t(e.bytes / e.format->bytes), out);
  return out;
}

}  // namespace sf::io
