// Elements as unsigned keys in ascending order, and a key together with the place of its element: one comparison of
// integers orders both, so that equal elements keep their order.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "scaffolding/backend/backend.h"
#include "scaffolding/core/half.h"

namespace sf::sorting {

// Floats: equal numbers get equal keys (-0 and 0 too), every NaN the largest. Integers: shifted to unsigned.
SF_INLINE uint32_t key_of(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x + 0.0f);  // -0 + 0 is +0
  uint32_t key = u ^ (uint32_t(int32_t(u) >> 31) | 0x80000000u);
  return x != x ? 0xffffffffu : key;
}
// of float32's bits, those that the format has
SF_INLINE uint32_t key_of(Half x) { return key_of(to_float(x)) >> 13; }
SF_INLINE uint32_t key_of(BFloat16 x) { return key_of(to_float(x)) >> 16; }
SF_INLINE uint64_t key_of(double x) {
  uint64_t u = std::bit_cast<uint64_t>(x + 0.0);
  if (x != x) return ~uint64_t(0);
  return u >> 63 ? ~u : u | (uint64_t(1) << 63);
}
SF_INLINE uint32_t key_of(uint8_t x) { return x; }
SF_INLINE uint32_t key_of(bool x) { return x; }
SF_INLINE uint32_t key_of(int8_t x) { return uint32_t(int32_t(x)) ^ 0x80000000u; }
SF_INLINE uint32_t key_of(int16_t x) { return uint32_t(int32_t(x)) ^ 0x80000000u; }
SF_INLINE uint32_t key_of(int32_t x) { return uint32_t(x) ^ 0x80000000u; }
SF_INLINE uint64_t key_of(int64_t x) { return uint64_t(x) ^ (uint64_t(1) << 63); }

template <class T> using KeyOf = decltype(key_of(T{}));

// Keys below 2^32 and their places share one word; wider keys take two.
struct Narrow {
  uint64_t word;
  Narrow() = default;
  Narrow(uint64_t key, int64_t i) : word(key << 32 | uint64_t(i)) {}
  uint64_t key() const { return word >> 32; }
  int64_t index() const { return int64_t(word & 0xffffffffu); }
  friend bool operator<(Narrow a, Narrow b) { return a.word < b.word; }
};
struct Wide {
  uint64_t bits;
  int64_t at;
  Wide() = default;
  Wide(uint64_t key, int64_t i) : bits(key), at(i) {}
  uint64_t key() const { return bits; }
  int64_t index() const { return at; }
  friend bool operator<(const Wide& a, const Wide& b) { return a.bits != b.bits ? a.bits < b.bits : a.at < b.at; }
};

// Room for n elements, from the cache of freed blocks: a long row does not pay for fresh pages.
template <class E> class Room {
 public:
  explicit Room(int64_t n) : bytes_(size_t(n) * sizeof(E)), data_(static_cast<E*>(cpu::allocate(bytes_))) {}
  ~Room() { cpu::release(data_, bytes_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  E* data() const { return data_; }

 private:
  size_t bytes_;
  E* data_;
};

}  // namespace sf::sorting
