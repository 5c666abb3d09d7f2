#include "scaffolding/io/formats/npy.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "scaffolding/io/byte_reader.h"
#include "scaffolding/io/tensor_bytes.h"

namespace sf::io {

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr uint64_t kMaxHeader = 1 << 20;

// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderParser {
 public:
  HeaderParser(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  NpyHeader parse() {
    NpyHeader h;
    int seen = 0;
    expect('{');
    while (!next('}')) {
      std::string_view key = quoted();
      expect(':');
      int bit = key == "descr" ? 1 : key == "fortran_order" ? 2 : key == "shape" ? 4 : 0;
      if (!bit || (seen & bit))
        refuse("has the key '", std::string(key), bit ? "' twice" : "', which is none of NumPy's");
      seen |= bit;
      if (bit == 1) descr(h);
      else if (bit == 2) h.fortran = boolean();
      else h.shape = shape();
      if (!next(',')) {
        expect('}');
        break;
      }
    }
    if (seen != 7) refuse("needs descr, fortran_order and shape");
    spaces();
    if (at_ != text_.size()) refuse("goes on behind its end");
    return h;
  }

 private:
  template <class... P> [[noreturn]] void refuse(const P&... why) const {
    fail(file_, ": the .npy header ", why..., " (at its byte ", at_, ")");
  }
  void spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool next(char c) {
    spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    return ++at_, true;
  }
  void expect(char c) {
    if (!next(c)) refuse("lacks a '", std::string(1, c), "'");
  }
  bool word(std::string_view w) {
    spaces();
    if (text_.substr(at_, w.size()) != w) return false;
    return at_ += w.size(), true;
  }
  std::string_view quoted() {
    spaces();
    char quote = at_ < text_.size() ? text_[at_] : 0;
    if (quote != '\'' && quote != '"') refuse("lacks a quoted name");
    size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) refuse("has a quote that does not end");
    std::string_view s = text_.substr(at_ + 1, end - at_ - 1);
    if (s.find('\\') != std::string_view::npos) refuse("has an escaped character");
    at_ = end + 1;
    return s;
  }
  bool boolean() {
    if (word("True")) return true;
    if (word("False")) return false;
    refuse("needs True or False as fortran_order");
  }
  void descr(NpyHeader& h) {
    spaces();
    SF_CHECK_AS(NotSupported, text_.substr(at_, 1) != "[", file_,
                ": holds a structured array; save its fields as arrays of their own");
    std::string_view d = quoted();
    char order = d.empty() ? 0 : d[0];
    if (order == '<' || order == '>' || order == '|' || order == '=') d.remove_prefix(1);
    bool sized = d.size() == 2 && d[1] >= '1' && d[1] <= '8';
    h.kind = d == "?" ? 'b' : sized ? d[0] : 0;
    h.item = d == "?" ? 1 : sized ? d[1] - '0' : 0;
    h.big_endian = order == '>';
    bool known = (h.kind == 'b' && h.item == 1) ||
                 ((h.kind == 'i' || h.kind == 'u') && (h.item == 1 || h.item == 2 || h.item == 4 || h.item == 8)) ||
                 (h.kind == 'f' && (h.item == 2 || h.item == 4 || h.item == 8));
    SF_CHECK_AS(NotSupported, known, file_, ": holds an array of NumPy's type '", std::string(d.substr(0, 40)),
                "'; bool, integers and float16, float32 and float64 are read");
  }
  Shape shape() {
    Shape s;
    expect('(');
    while (!next(')')) {
      spaces();
      int64_t v = 0;
      size_t begin = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
        if (__builtin_mul_overflow(v, int64_t(10), &v) || __builtin_add_overflow(v, int64_t(text_[at_] - '0'), &v))
          refuse("has a size over 2^63");
      if (at_ == begin) refuse("has a size that is no number");
      word("L");  // Python 2's long
      if (s.size() == kMaxDims) refuse("has more than ", kMaxDims, " dimensions");
      s.push_back(v);
      if (!next(',')) {
        expect(')');
        break;
      }
    }
    return s;
  }

  const std::string& file_;
  std::string_view text_;
  size_t at_ = 0;
};

std::optional<DType> dtype_of_header(const NpyHeader& h) {
  if (h.kind == 'b') return kBool;
  if (h.kind == 'f') return h.item == 2 ? kFloat16 : h.item == 4 ? kFloat32 : kFloat64;
  if (h.kind == 'u') return h.item == 1 ? std::optional(kUInt8) : std::nullopt;
  return h.item == 1 ? kInt8 : h.item == 2 ? kInt16 : h.item == 4 ? kInt32 : kInt64;
}

Bytes swapped(const Bytes& bytes, int item) {
  Bytes out = Bytes::copy(bytes.data, bytes.size, bytes.name);
  auto* p = const_cast<std::byte*>(out.data);
  for (uint64_t i = 0; i + uint64_t(item) <= out.size; i += uint64_t(item)) std::reverse(p + i, p + i + item);
  return out;
}

std::string_view descr_of(DType t) {
  switch (t) {
    case kBool: return "|b1";
    case kUInt8: return "|u1";
    case kInt8: return "|i1";
    case kInt16: return "<i2";
    case kInt32: return "<i4";
    case kInt64: return "<i8";
    case kFloat16: return "<f2";
    case kFloat32: return "<f4";
    case kFloat64: return "<f8";
    default: fail<TypeError>("save_npy: NumPy has no ", t, "; use tensor.float() first");
  }
}

// Version 1.0, padded with spaces so that the elements begin at a multiple of 64 bytes.
std::string header_of(const Tensor& t) {
  check_defined("save_npy", "array", t);
  SF_CHECK_AS(RuntimeError, !t.device().is_meta(), "save_npy: the tensor is on the meta device and has no bytes");
  std::string h = "{'descr': '" + std::string(descr_of(t.dtype())) + "', 'fortran_order': False, 'shape': (";
  for (int64_t i = 0; i < t.ndim(); ++i) h += (i ? ", " : "") + std::to_string(t.shape()[i]);
  h += t.ndim() == 1 ? ",), }" : "), }";
  h.append((64 - (10 + h.size() + 1) % 64) % 64, ' ');
  h += '\n';
  auto n = uint16_t(h.size());
  return std::string(kMagic) + std::string("\x01\x00", 2) + std::string(reinterpret_cast<const char*>(&n), 2) + h;
}

constexpr std::string_view kEnding = ".npy";

}  // namespace

bool is_npy(const Bytes& file) {
  return file.size >= kMagic.size() && std::memcmp(file.data, kMagic.data(), kMagic.size()) == 0;
}

// Of a file of `size` bytes that begins so.
static NpyHeader read_npy_header(const Bytes& file, uint64_t size) {
  SF_CHECK(is_npy(file), file.name, ": is no .npy file: it does not begin with \\x93NUMPY");
  ByteReader in(file, kMagic.size());
  auto major = in.get<uint8_t>();
  in.skip(1);
  SF_CHECK(major >= 1 && major <= 3, file.name, ": is a .npy file of version ", int(major),
           "; versions 1 to 3 are read");
  uint64_t length = major == 1 ? in.get<uint16_t>() : in.get<uint32_t>();
  SF_CHECK(length <= kMaxHeader, file.name, ": the .npy header cannot have ", length, " bytes");
  NpyHeader h = HeaderParser(file.name, in.text(length)).parse();
  h.data = in.at();
  uint64_t want = checked_bytes(file.name + ": the array", h.shape, uint64_t(8 * h.item));
  SF_CHECK(want == size - h.data, file.name, ": an array of shape ", h.shape, " and ", h.item, "-byte elements has ",
           want, " bytes, the file has ", size - h.data);
  return h;
}

NpyHeader read_npy_header(const Bytes& file) { return read_npy_header(file, file.size); }

Tensor load_npy(const Bytes& file) {
  NpyHeader h = read_npy_header(file);
  Bytes data = file.slice(h.data, file.size - h.data);
  if (h.big_endian && h.item > 1) data = swapped(data, h.item);
  if (auto t = dtype_of_header(h)) return array_of_bytes(data, h.shape, *t, h.fortran);
  if (!h.fortran) return widened_unsigned(data, h.shape, h.item);
  Shape reversed = h.shape, order = h.shape;
  std::reverse(reversed.begin(), reversed.end());
  for (int64_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  return widened_unsigned(data, reversed, h.item).permute(order);
}

void save_npy(const Tensor& array, Sink& sink) {
  std::string header = header_of(array);
  sink.write(header.data(), header.size());
  write_tensor(sink, array);
}

NpzFile::NpzFile(const Bytes& file) : zip_(file) {
  for (auto& e : zip_.entries()) {
    SF_CHECK(e.name.size() > kEnding.size() && e.name.ends_with(kEnding), file.name,
             ": is no .npz file: it has an entry '", e.name, "'");
    names_.push_back(e.name.substr(0, e.name.size() - kEnding.size()));
  }
}

const ZipEntry& NpzFile::entry(const std::string& name) const {
  const ZipEntry* e = zip_.find(name + std::string(kEnding));
  SF_CHECK(e, zip_.name(), ": there is no array '", name, "'");
  return *e;
}

NpyHeader NpzFile::header(const std::string& name) const {
  const ZipEntry& e = entry(name);
  Bytes bytes = zip_.begin(e, kMagic.size() + 6 + kMaxHeader);
  bytes.name += ": " + name;
  return read_npy_header(bytes, e.size);
}

Tensor NpzFile::get(const std::string& name) const {
  Bytes bytes = zip_.read(entry(name), true);
  bytes.name += ": " + name;
  return load_npy(bytes);
}

void save_npz(const std::map<std::string, Tensor>& arrays, Sink& sink) {
  for (auto& [name, t] : arrays) header_of(t);  // what cannot be saved is found before anything is written
  ZipWriter zip(sink);
  for (auto& [name, t] : arrays) {
    MemorySink one;  // the archive wants the checksum before the bytes
    save_npy(t, one);
    zip.add(name + std::string(kEnding), one.bytes.data(), one.bytes.size());
  }
  zip.finish();
}

}  // namespace sf::io
