// ByteReader: walks through bytes of unknown origin. Every read is checked against what is left; ValueError names the
// file and the place. Numbers are little-endian. One thread at a time.
#pragma once
#include <cstring>

#include "scaffolding/core/error.h"
#include "scaffolding/io/file.h"

namespace sf::io {

class ByteReader {
 public:
  explicit ByteReader(const Bytes& bytes, uint64_t at = 0) : bytes_(bytes), at_(at) {
    SF_CHECK(at <= bytes.size, bytes.name, ": ends before byte ", at);
  }
  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size - at_; }
  const std::string& name() const { return bytes_.name; }
  void need(uint64_t n) const {
    SF_CHECK(n <= left(), bytes_.name, ": is cut short or damaged: ", n, " more bytes are needed at byte ", at_, ", ",
             left(), " are left");
  }
  template <class T> T get() {
    need(sizeof(T));
    T v;
    std::memcpy(&v, bytes_.data + at_, sizeof v);
    at_ += sizeof v;
    return v;
  }
  std::string_view text(uint64_t n) {
    need(n);
    std::string_view s(n ? bytes_.chars() + at_ : "", size_t(n));
    at_ += n;
    return s;
  }
  void skip(uint64_t n) {
    need(n);
    at_ += n;
  }
  // Up to and without the next newline, which is passed over.
  std::string_view line(uint64_t at_most) {
    uint64_t limit = std::min(left(), at_most);
    const void* end = limit ? std::memchr(bytes_.data + at_, '\n', size_t(limit)) : nullptr;
    SF_CHECK(end, bytes_.name, ": is damaged: a line that begins at byte ", at_, " does not end");
    std::string_view s(bytes_.chars() + at_, size_t(static_cast<const char*>(end) - (bytes_.chars() + at_)));
    at_ += s.size() + 1;
    return s;
  }

 private:
  Bytes bytes_;
  uint64_t at_;
};

}  // namespace sf::io
