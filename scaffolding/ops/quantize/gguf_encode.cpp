// Blocks of 32. Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 round as the gguf package does, step for step.
#include "scaffolding/ops/quantize/gguf_encode.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/quantize/gguf_codes.h"

namespace sf {

namespace {

// The first number of the largest magnitude, with its sign.
float largest(const float* x) {
  float most = 0;
  for (int j = 0; j < 32; ++j)
    if (std::fabs(x[j]) > std::fabs(most)) most = x[j];
  return most;
}

int code(float x, int most) { return std::clamp(int(x), 0, most); }

void put_fifth_bits(uint8_t* to, const int* q) {
  uint32_t high = 0;
  for (int j = 0; j < 32; ++j) high |= uint32_t(q[j] >> 4) << j;
  std::memcpy(to, &high, 4);
}
void put_halves(uint8_t* to, const int* q) {
  for (int j = 0; j < 16; ++j) to[j] = uint8_t((q[j] & 15) | (q[j + 16] & 15) << 4);
}

// Codes of x = d * (code - middle), with the largest number at code 0.
void symmetric(const float* x, int middle, int* q, float& d) {
  d = largest(x) / float(-middle);
  const float scale = inverse_or_0(d);
  for (int j = 0; j < 32; ++j) q[j] = code(x[j] * scale + (float(middle) + 0.5f), 2 * middle - 1);
}
// Codes of x = d * code + m.
void from_minimum(const float* x, int most, int* q, float& d, float& m) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  m = *low;
  d = (*high - m) / float(most);
  const float scale = inverse_or_0(d);
  for (int j = 0; j < 32; ++j) q[j] = code((x[j] - m) * scale + 0.5f, most);
}

}  // namespace

void encode_Q4_0(const float* x, uint8_t* b) {
  int q[32];
  float d;
  symmetric(x, 8, q, d);
  put_half(b, d);
  put_halves(b + 2, q);
}
void encode_Q5_0(const float* x, uint8_t* b) {
  int q[32];
  float d;
  symmetric(x, 16, q, d);
  put_half(b, d);
  put_fifth_bits(b + 2, q);
  put_halves(b + 6, q);
}
void encode_Q4_1(const float* x, uint8_t* b) {
  int q[32];
  float d, m;
  from_minimum(x, 15, q, d, m);
  put_half(b, d);
  put_half(b + 2, m);
  put_halves(b + 4, q);
}
void encode_Q5_1(const float* x, uint8_t* b) {
  int q[32];
  float d, m;
  from_minimum(x, 31, q, d, m);
  put_half(b, d);
  put_half(b + 2, m);
  put_fifth_bits(b + 4, q);
  put_halves(b + 8, q);
}
void encode_Q8_0(const float* x, uint8_t* b) {
  const float d = std::fabs(largest(x)) / 127, scale = inverse_or_0(d);
  put_half(b, d);
  for (int j = 0; j < 32; ++j) {  // half away from zero
    const float y = std::fabs(x[j] * scale), whole = std::floor(y);
    b[2 + j] = uint8_t(int8_t(std::copysign(whole + std::floor(2 * (y - whole)), x[j] * scale)));
  }
}

// The scale with the least squared error among those that bring the largest number near an end of the table.
void encode_IQ4_NL(const float* x, uint8_t* b) {
  const float most = largest(x);
  auto nearest = [](float y) {
    int c = 0;
    for (int i = 0; i < 15; ++i) c += y > 0.5f * float(kIq4.v[i] + kIq4.v[i + 1]);
    return c;
  };
  int q[32] = {};
  float best_scale = 0, best_gain = -1;
  for (int step = -5; step <= 5 && most != 0; ++step)
    for (const float end : {-127.f, 113.f}) {
      const float guess = inverse_or_0(most / (end + 2.5f * float(step)));
      float xc = 0, cc = 0;
      int codes[32];
      for (int j = 0; j < 32; ++j) {
        codes[j] = nearest(x[j] * guess);
        const auto c = float(kIq4.v[codes[j]]);
        xc += x[j] * c, cc += c * c;
      }
      if (cc > 0 && xc * xc / cc > best_gain) {  // what the least-squares scale takes off the error
        best_gain = xc * xc / cc, best_scale = xc / cc;
        std::copy_n(codes, 32, q);
      }
    }
  put_half(b, best_scale);
  const float d = to_float(from_float<Half>(best_scale)), scale = inverse_or_0(d);
  if (scale != 0)
    for (int j = 0; j < 32; ++j) q[j] = nearest(x[j] * scale);
  put_halves(b + 2, q);
}

bool encode_gguf(GgufBlocks format, const float* x, int64_t n, uint8_t* blocks) {
  std::atomic<bool> good = true;
  auto all = [&](int64_t block, int64_t bytes, void (*encode)(const float*, uint8_t*),
                 std::initializer_list<int> halves) {
    parallel_for(n / block, std::max<int64_t>(1, 2048 / block), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* from = x + i * block;
        uint8_t* to = blocks + i * bytes;
        bool finite = true;
        // far above what a float16 scale allows, and squares still have sums
        for (int64_t j = 0; j < block; ++j) finite = finite && std::fabs(from[j]) < 1e16f;
        if (finite) encode(from, to);
        for (int at : halves) {
          Half h;
          std::memcpy(&h, to + at, 2);
          finite = finite && std::isfinite(to_float(h));
        }
        if (!finite) good = false;
      }
    });
  };
  switch (format) {
    case GgufBlocks::Q4_0: all(32, 18, encode_Q4_0, {0}); break;
    case GgufBlocks::Q4_1: all(32, 20, encode_Q4_1, {0, 2}); break;
    case GgufBlocks::Q5_0: all(32, 22, encode_Q5_0, {0}); break;
    case GgufBlocks::Q5_1: all(32, 24, encode_Q5_1, {0, 2}); break;
    case GgufBlocks::Q8_0: all(32, 34, encode_Q8_0, {0}); break;
    case GgufBlocks::IQ4_NL: all(32, 18, encode_IQ4_NL, {0}); break;
    case GgufBlocks::Q2_K: all(256, 84, encode_Q2_K, {80, 82}); break;
    case GgufBlocks::Q3_K: all(256, 110, encode_Q3_K, {108}); break;
    case GgufBlocks::Q4_K: all(256, 144, encode_Q4_K, {0, 2}); break;
    case GgufBlocks::Q5_K: all(256, 176, encode_Q5_K, {0, 2}); break;
    case GgufBlocks::Q6_K: all(256, 210, encode_Q6_K, {208}); break;
  }
  return good;
}

}  // namespace sf
