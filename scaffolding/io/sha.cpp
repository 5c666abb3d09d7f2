#include "scaffolding/io/sha.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace sf::io {

namespace {

// FIPS 180-4, 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
constexpr uint32_t kStart1[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
constexpr uint32_t kStart256[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

uint32_t big_endian(const unsigned char* p) {
  return uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | p[3];
}

void block1(uint32_t* s, const unsigned char* p) {
  uint32_t w[80];
  for (int t = 0; t < 16; ++t) w[t] = big_endian(p + 4 * t);
  for (int t = 16; t < 80; ++t) w[t] = std::rotl(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
  uint32_t a = s[0], b = s[1], c = s[2], d = s[3], e = s[4];
  for (int t = 0; t < 80; ++t) {
    uint32_t f = t < 20 ? (b & c) | (~b & d) : t < 40 || t >= 60 ? b ^ c ^ d : (b & c) | (b & d) | (c & d);
    uint32_t k = t < 20 ? 0x5a827999 : t < 40 ? 0x6ed9eba1 : t < 60 ? 0x8f1bbcdc : 0xca62c1d6;
    uint32_t next = std::rotl(a, 5) + f + e + k + w[t];
    e = d, d = c, c = std::rotl(b, 30), b = a, a = next;
  }
  s[0] += a, s[1] += b, s[2] += c, s[3] += d, s[4] += e;
}

void block256(uint32_t* s, const unsigned char* p) {
  uint32_t w[64], v[8];
  for (int t = 0; t < 16; ++t) w[t] = big_endian(p + 4 * t);
  for (int t = 16; t < 64; ++t) {
    uint32_t a = w[t - 15], b = w[t - 2];
    w[t] = w[t - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[t - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  std::copy(s, s + 8, v);
  for (int t = 0; t < 64; ++t) {
    uint32_t one = v[7] + (std::rotr(v[4], 6) ^ std::rotr(v[4], 11) ^ std::rotr(v[4], 25)) +
                   ((v[4] & v[5]) ^ (~v[4] & v[6])) + kRound[t] + w[t];
    uint32_t two = (std::rotr(v[0], 2) ^ std::rotr(v[0], 13) ^ std::rotr(v[0], 22)) +
                   ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
    for (int i = 7; i > 0; --i) v[i] = v[i - 1];
    v[4] += one;
    v[0] = one + two;
  }
  for (int i = 0; i < 8; ++i) s[i] += v[i];
}

#if defined(__x86_64__)

// 1.4 GB/s where block256 has 0.23 (one core of a Xeon of 2023), so that checking a download does not slow it down.
bool has_sha_instructions() {
  unsigned a, b, c, d;
  bool sse = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) && (c & bit_SSSE3);
  return sse && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

// The instructions want the state as (a, b, e, f) and (c, d, g, h), highest word first;
// w holds the last 16 words of the schedule.
__attribute__((target("sha,ssse3,sse4.1"))) void blocks256(uint32_t* state, const unsigned char* p, size_t count) {
  auto load = [](const void* from) __attribute__((target("sse4.1"))) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  };
  const __m128i big_endian_words = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i cdab = _mm_shuffle_epi32(load(state), 0xb1), hgfe = _mm_shuffle_epi32(load(state + 4), 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, cdab, 0xf0);
  for (; count > 0; --count, p += 64) {
    const __m128i abef0 = abef, cdgh0 = cdgh;
    __m128i w[4];
    for (int i = 0; i < 16; ++i) {  // four rounds each
      __m128i& now = w[i % 4];
      if (i < 4) {
        now = _mm_shuffle_epi8(load(p + 16 * i), big_endian_words);
      } else {
        __m128i before = w[(i + 3) % 4];
        now = _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]), _mm_alignr_epi8(before, w[(i + 2) % 4], 4));
        now = _mm_sha256msg2_epu32(now, before);
      }
      __m128i sum = _mm_add_epi32(now, load(kRound + 4 * i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef0);
    cdgh = _mm_add_epi32(cdgh, cdgh0);
  }
  __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

#else

bool has_sha_instructions() { return false; }
void blocks256(uint32_t* state, const unsigned char* p, size_t count) {
  for (; count > 0; --count, p += 64) block256(state, p);
}

#endif

}  // namespace

Sha::Sha(Kind kind, bool portable) : kind_(kind), portable_(portable) {
  if (kind == Sha1) {
    std::copy(kStart1, kStart1 + 5, state_);
  } else {
    std::copy(kStart256, kStart256 + 8, state_);
  }
}

void Sha::blocks(const unsigned char* p, size_t count) {
  static const bool fast = has_sha_instructions();
  if (kind_ == Sha256 && fast && !portable_) return blocks256(state_, p, count);
  for (; count > 0; --count, p += 64) kind_ == Sha1 ? block1(state_, p) : block256(state_, p);
}

void Sha::update(const void* data, size_t bytes) {
  if (bytes == 0) return;
  auto* p = static_cast<const unsigned char*>(data);
  size_t filled = size_t(length_ % 64);
  length_ += bytes;
  if (filled > 0) {
    size_t n = std::min(bytes, 64 - filled);
    std::memcpy(rest_ + filled, p, n);
    if (filled + n < 64) return;
    blocks(rest_, 1);
    p += n;
    bytes -= n;
  }
  blocks(p, bytes / 64);
  std::memcpy(rest_, p + bytes / 64 * 64, bytes % 64);
}

std::string Sha::hex() {
  uint64_t bits = length_ * 8;
  const unsigned char one = 0x80, zero = 0;
  update(&one, 1);
  while (length_ % 64 != 56) update(&zero, 1);
  unsigned char size[8];
  for (int i = 0; i < 8; ++i) size[i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
  update(size, 8);
  std::string out;
  for (int i = 0; i < (kind_ == Sha1 ? 5 : 8); ++i)
    for (int shift = 28; shift >= 0; shift -= 4) out += "0123456789abcdef"[state_[i] >> shift & 15];
  return out;
}

}  // namespace sf::io
