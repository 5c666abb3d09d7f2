#include "scaffolding/io/formats/gguf.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "scaffolding/io/byte_reader.h"
#include "scaffolding/io/tensor_bytes.h"
#include "scaffolding/ops/quantize/gguf.h"

namespace sf::io {

namespace {

constexpr std::string_view kShapeBefore = "comfy.gguf.orig_shape.";
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

// The value of kShapeBefore at a place of the file: sizes with as many numbers as the tensor has.
Shape shape_before(const Bytes& file, uint64_t at, const std::string& who, const Shape& now) {
  ByteReader in(file, at);
  const io::Object sizes = value_of(in, kArray);
  Shape out;
  int64_t count = 1;
  bool fits = sizes.items().size() <= size_t(kMaxDims);
  for (size_t i = 0; fits && i < sizes.items().size(); ++i) {
    const io::Object& size = sizes.items()[i];
    fits = size.is(io::Object::Int) && size.as_int() >= 0 && !__builtin_mul_overflow(count, size.as_int(), &count);
    if (fits) out.push_back(size.as_int());
  }
  SF_CHECK(fits && count == numel(now), who, " of ", now, " cannot have had the shape that ", std::string(kShapeBefore),
           "* says");
  return out;
}

}  // namespace

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
  std::unordered_map<std::string_view, uint64_t> before;  // where the shape that a tensor had begins
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
    if (type == kArray && key.starts_with(kShapeBefore)) before.emplace(key.substr(kShapeBefore.size()), in.at());
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
    if (auto at = before.find(e.name); at != before.end()) e.shape = shape_before(file, at->second, who, e.shape);
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
  if (e.format->plain) return tensor_of_bytes(bytes, e.shape, *e.format->plain);
  SF_CHECK_AS(NotSupported, e.format->blocks, content_->file.name, ": tensor '", e.name, "' is quantised as ",
              std::string(e.format->name), ", which is not read");
  SF_CHECK_AS(TypeError, dtype == kFloat32 || dtype == kFloat16 || dtype == kBFloat16,
              "gguf: quantised tensors become float32, float16 or bfloat16, got ", dtype);
  return dequantize_gguf(stored(name), std::string(e.format->name), e.shape, dtype);
}

Tensor GgufFile::stored(std::string_view name) const {
  const GgufEntry& e = entry(name);
  return tensor_of_bytes(content_->data.slice(e.offset, e.bytes), {int64_t(e.bytes)}, kUInt8);
}

}  // namespace sf::io
