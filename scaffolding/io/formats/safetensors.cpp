#include "scaffolding/io/formats/safetensors.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "scaffolding/io/tensor_bytes.h"

namespace sf::io {

namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the reference implementation's cap

struct Format {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;  // none: the format has it, Scaffolding does not
};
constexpr Format kFormats[] = {
    {"F64", 64, kFloat64},
    {"F32", 32, kFloat32},
    {"F16", 16, kFloat16},
    {"BF16", 16, kBFloat16},
    {"I64", 64, kInt64},
    {"I32", 32, kInt32},
    {"I16", 16, kInt16},
    {"I8", 8, kInt8},
    {"U8", 8, kUInt8},
    {"BOOL", 8, kBool},
    {"F8_E4M3", 8, kFloat8E4M3},
    {"F8_E5M2", 8, kFloat8E5M2},
    {"U16", 16, {}},
    {"U32", 32, {}},
    {"U64", 64, {}},
    {"F8_E8M0", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
    {"C64", 64, {}},
};

const Format* find_format(std::string_view name) {
  for (auto& f : kFormats)
    if (f.name == name) return &f;
  return nullptr;
}

// Reads the header event by event: {name: {dtype, shape, data_offsets}, "__metadata__": {key: text}}. No tree is built
// and nothing recurses, so that nesting costs no stack and a wrong type is refused where it stands.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<SafetensorsEntry> entries;
  Metadata metadata;
  std::string problem;  // why parsing stopped

  bool start_object(size_t) override {
    if (where_ == Start) return where_ = Top, true;
    if (where_ == Top) return where_ = key_ == "__metadata__" ? Meta : Entry, seen_ = 0, true;
    return refuse("an object");
  }
  bool end_object() override {
    if (where_ == Entry && seen_ != 7)
      return stop("tensor '" + entries.back().name + "' needs dtype, shape and data_offsets");
    where_ = where_ == Top ? Done : Top;
    return true;
  }
  bool key(std::string& k) override {
    if (where_ == Top) {
      if (!names_.insert(k).second) return stop("name '" + shown(k) + "' appears twice");
      if (k != "__metadata__") entries.push_back({k, {}, {}, 0, 0});
    } else if (where_ == Meta) {
      if (metadata.count(k)) return stop("metadata key '" + shown(k) + "' appears twice");
    } else {
      field_ = k == "dtype" ? 1 : k == "shape" ? 2 : k == "data_offsets" ? 4 : 0;
      if (!field_) return stop("tensor '" + shown(entries.back().name) + "' has an unknown field '" + shown(k) + "'");
      if (seen_ & field_) return stop("tensor '" + shown(entries.back().name) + "' has two fields '" + k + "'");
      seen_ |= field_;
    }
    key_ = std::move(k);
    return true;
  }
  bool start_array(size_t) override {
    if (where_ != Entry || field_ == 1) return refuse("an array");
    offsets_ = 0;
    where_ = Array;
    return true;
  }
  bool end_array() override {
    where_ = Entry;
    if (field_ == 4 && offsets_ != 2)
      return stop("data_offsets of '" + shown(entries.back().name) + "' must be two numbers");
    return true;
  }
  bool number_unsigned(uint64_t v) override {
    if (where_ != Array) return refuse("a number");
    SafetensorsEntry& e = entries.back();
    if (field_ == 2) {
      if (e.shape.size() == kMaxDims)
        return stop("tensor '" + shown(e.name) + "' has more than " + std::to_string(kMaxDims) + " dimensions");
      if (v > uint64_t(INT64_MAX)) return stop("tensor '" + shown(e.name) + "' has a size over 2^63");
      e.shape.push_back(int64_t(v));
    } else {
      if (offsets_ == 2) return stop("data_offsets of '" + shown(e.name) + "' must be two numbers");
      (offsets_++ ? e.end : e.begin) = v;
    }
    return true;
  }
  bool string(std::string& s) override {
    if (where_ == Meta) return metadata[key_] = std::move(s), true;
    if (where_ != Entry || field_ != 1) return refuse("a string");
    entries.back().dtype = std::move(s);
    return true;
  }
  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a bool"); }
  bool number_integer(int64_t) override { return refuse("a negative number"); }
  bool number_float(double, const std::string&) override { return refuse("a number that is no 64-bit integer"); }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    return stop("the JSON is broken at byte " + std::to_string(position));
  }

 private:
  enum { Start, Top, Meta, Entry, Array, Done } where_ = Start;
  static std::string shown(const std::string& s) { return s.size() <= 80 ? s : s.substr(0, 80) + "..."; }
  bool stop(std::string why) { return problem = std::move(why), false; }
  bool refuse(const char* what) {
    return stop(std::string(what) + (where_ == Start ? " is the whole header" : " stands at '" + shown(key_) + "'"));
  }

  std::unordered_set<std::string> names_;
  std::string key_;
  int field_ = 0, seen_ = 0, offsets_ = 0;
};

uint64_t read_little_endian(const std::byte* p) {
  uint64_t v = 0;
  for (int i = 7; i >= 0; --i) v = v << 8 | uint64_t(p[i]);
  return v;
}

void check_layout(const std::string& path, std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  std::string who;
  for (auto& e : entries) {
    who.assign(path).append(": tensor '").append(e.name).append("'");
    const Format* f = find_format(e.dtype);
    SF_CHECK(f, who, " has the unknown dtype '", e.dtype, "'");
    SF_CHECK(e.begin <= e.end && e.end <= data_bytes, path, ": tensor '", e.name, "' has data_offsets [", e.begin, ", ",
             e.end, "] in a file with ", data_bytes, " bytes of data");
    SF_CHECK(e.end - e.begin == checked_bytes(who, e.shape, uint64_t(f->bits)), path, ": tensor '", e.name, "' of ",
             e.dtype, " ", e.shape, " does not fill its ", e.end - e.begin, " bytes of data");
  }
  auto before = [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  };
  if (!std::is_sorted(entries.begin(), entries.end(), before)) std::stable_sort(entries.begin(), entries.end(), before);
  uint64_t at = 0;
  for (auto& e : entries) {
    SF_CHECK(e.begin == at, path, ": tensor '", e.name, "' begins at byte ", e.begin,
             " of the data, the one before it ends at ", at);
    at = e.end;
  }
  SF_CHECK(at == data_bytes, path, ": ", data_bytes - at, " bytes follow the last tensor");
}

}  // namespace

struct SafetensorsFile::Content {
  std::string path;
  Bytes data;  // behind the header
  std::vector<SafetensorsEntry> entries;
  std::unordered_map<std::string_view, size_t> index;
  Metadata metadata;
};

SafetensorsFile::SafetensorsFile(const std::string& path) : SafetensorsFile(Bytes::open(path)) {}

SafetensorsFile::SafetensorsFile(const Bytes& file) {
  auto c = std::make_shared<Content>();
  const std::string& path = c->path = file.name;
  uint64_t size = file.size;
  SF_CHECK(size >= 8, path, ": a safetensors file begins with 8 bytes of header length, this file has ", size);
  uint64_t header = read_little_endian(file.slice(0, 8).mapped().data);
  SF_CHECK(header <= kMaxHeader && header <= size - 8, path, ": the header cannot have ", header,
           " bytes in a file of ", size);
  const Bytes head = file.slice(0, 8 + header).mapped();
  const std::byte* bytes = head.data;
  SF_CHECK(header >= 2 && bytes[8] == std::byte('{'), path, ": the header is not a JSON object");
  auto* text = reinterpret_cast<const char*>(bytes + 8);
  HeaderReader reader;
  // growing copies them: room for a usual file, and little for a long header of nothing
  reader.entries.reserve(std::min<uint64_t>(header / 128, 4096));
  bool fine = nlohmann::json::sax_parse(text, text + header, &reader);
  SF_CHECK(fine, path, ": ", reader.problem);
  c->entries = std::move(reader.entries);
  c->metadata = std::move(reader.metadata);
  c->data = file.slice(8 + header, size - 8 - header);
  check_layout(path, c->entries, size - 8 - header);
  c->index.reserve(c->entries.size());
  for (size_t i = 0; i < c->entries.size(); ++i) c->index[c->entries[i].name] = i;
  content_ = std::move(c);
}

const std::vector<SafetensorsEntry>& SafetensorsFile::entries() const { return content_->entries; }
const Metadata& SafetensorsFile::metadata() const { return content_->metadata; }
bool SafetensorsFile::contains(std::string_view name) const { return content_->index.count(name) > 0; }
const SafetensorsEntry& SafetensorsFile::entry(std::string_view name) const {
  auto it = content_->index.find(name);
  SF_CHECK(it != content_->index.end(), content_->path, ": there is no tensor '", name, "'");
  return content_->entries[it->second];
}

Tensor SafetensorsFile::get(std::string_view name) const {
  const SafetensorsEntry& e = entry(name);
  const Format& f = *find_format(e.dtype);
  Bytes bytes = content_->data.slice(e.begin, e.end - e.begin).mapped();
  if (f.name == "U16" || f.name == "U32" || f.name == "U64") return widened_unsigned(bytes, e.shape, f.bits / 8);
  SF_CHECK_AS(NotSupported, f.dtype, content_->path, ": tensor '", e.name, "' has dtype ", e.dtype,
              ", which Scaffolding cannot hold");
  return tensor_of_bytes(bytes, e.shape, *f.dtype);
}

std::map<std::string, Tensor> load_safetensors(const std::string& path) {
  SafetensorsFile file(path);
  std::map<std::string, Tensor> out;
  for (auto& e : file.entries()) out[e.name] = file.get(e.name);
  return out;
}

std::optional<DType> safetensors_dtype(std::string_view spelled) {
  const Format* f = find_format(spelled);
  return f ? f->dtype : std::nullopt;
}

// ---- writing

static std::string quoted(const std::string& s) {
  try {
    return nlohmann::json(s).dump();
  } catch (const nlohmann::json::exception&) {
    fail("save_safetensors: names and metadata must be UTF-8, got '", s, "'");
  }
}

namespace {

struct Plan {
  std::vector<std::pair<const std::string*, Tensor>> order;
  std::string header;  // with its length
};

Plan planned(const std::map<std::string, Tensor>& tensors, const Metadata& metadata) {
  std::vector<std::pair<const std::string*, Tensor>> order;
  for (auto& [name, t] : tensors) {
    SF_CHECK(name != "__metadata__", "save_safetensors: '__metadata__' cannot name a tensor");
    SF_CHECK_AS(TypeError, t.defined(), "save_safetensors: '", name, "' must be a tensor, got None");
    SF_CHECK_AS(RuntimeError, !t.device().is_meta(), "save_safetensors: '", name,
                "' is on the meta device and has no bytes");
    order.push_back({&name, t.detach()});
  }
  // Large items first: every tensor is then aligned, because the header is padded to 8 bytes.
  std::stable_sort(order.begin(), order.end(),
                   [](auto& a, auto& b) { return a.second.itemsize() > b.second.itemsize(); });
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (auto& [k, v] : metadata) header += quoted(k) + ":" + quoted(v) + ",";
    header.back() = '}';
    header += ',';
  }
  uint64_t at = 0;
  for (auto& [name, t] : order) {
    std::string_view dtype;
    for (auto& f : kFormats)
      if (f.dtype == t.dtype()) dtype = f.name;
    header += quoted(*name) + ":{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":[";
    for (int64_t i = 0; i < t.ndim(); ++i) header.append(i ? "," : "").append(std::to_string(t.shape()[i]));
    header += "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + t.nbytes()) + "]},";
    at += t.nbytes();
  }
  if (header.size() > 1) header.pop_back();
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  SF_CHECK(header.size() <= kMaxHeader, "save_safetensors: the names and metadata need ", header.size(),
           " bytes, at most ", kMaxHeader, " are allowed");
  uint64_t length = header.size();
  return {std::move(order), std::string(reinterpret_cast<const char*>(&length), 8) + header};
}

void write(const Plan& plan, Sink& sink) {
  sink.write(plan.header.data(), plan.header.size());
  for (auto& [name, t] : plan.order) write_tensor(sink, t);  // one tensor at a time: no second copy of a whole model
}

}  // namespace

void save_safetensors(const std::map<std::string, Tensor>& tensors, Sink& sink, const Metadata& metadata) {
  write(planned(tensors, metadata), sink);
}

void save_safetensors(const std::map<std::string, Tensor>& tensors, const std::string& path, const Metadata& metadata) {
  Plan plan = planned(tensors, metadata);  // what cannot be saved is found before a file is made
  ReplacingFile file(path);
  write(plan, file);
  file.commit();
}

}  // namespace sf::io
