// SHA-1 and SHA-256 (FIPS 180-4) of bytes that come in pieces: the checksums by which a model hub names its files.
// For finding damage, not for signatures: SHA-1 is broken as one. One thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace sf::io {

class Sha {
 public:
  enum Kind : uint8_t { Sha1, Sha256 };
  explicit Sha(Kind kind, bool portable = false);  // portable: without the processor's instructions for SHA-256
  void update(const void* data, size_t bytes);
  std::string hex();  // 40 or 64 digits; nothing may be added afterwards

 private:
  void blocks(const unsigned char* p, size_t count);  // of 64 bytes
  Kind kind_;
  bool portable_;
  uint32_t state_[8];
  uint64_t length_ = 0;  // bytes so far
  unsigned char rest_[64];
};

}  // namespace sf::io
