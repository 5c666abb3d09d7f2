// The block formats of ggml (ggml-quants.c, dequantize_row_*). A block holds 32 or, for the K formats, 256 numbers:
// small integers times scales, which the K formats store as integers themselves.
#include <cstring>

#include "scaffolding/core/parallel.h"
#include "scaffolding/io/formats/gguf.h"

namespace sf::io {

namespace {

using Byte = uint8_t;

float half_at(const Byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return to_float(Half{bits});
}

// ---- 32 numbers. Number j is the low half of byte j, number j + 16 the high half.

void q4_0(const Byte* b, float* y) {  // half d; 16 bytes
  float d = half_at(b);
  for (int j = 0; j < 16; ++j) {
    y[j] = float((b[2 + j] & 15) - 8) * d;
    y[j + 16] = float((b[2 + j] >> 4) - 8) * d;
  }
}
void q4_1(const Byte* b, float* y) {  // half d, m; 16 bytes
  float d = half_at(b), m = half_at(b + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = float(b[4 + j] & 15) * d + m;
    y[j + 16] = float(b[4 + j] >> 4) * d + m;
  }
}
// The fifth bit of number j is bit j of a 32-bit word.
int fifth(uint32_t high, int j) { return int(high >> j & 1) << 4; }
void q5_0(const Byte* b, float* y) {  // half d; 32 fifth bits; 16 bytes
  float d = half_at(b);
  uint32_t high;
  std::memcpy(&high, b + 2, 4);
  for (int j = 0; j < 16; ++j) {
    y[j] = float(((b[6 + j] & 15) | fifth(high, j)) - 16) * d;
    y[j + 16] = float(((b[6 + j] >> 4) | fifth(high, j + 16)) - 16) * d;
  }
}
void q5_1(const Byte* b, float* y) {  // half d, m; 32 fifth bits; 16 bytes
  float d = half_at(b), m = half_at(b + 2);
  uint32_t high;
  std::memcpy(&high, b + 4, 4);
  for (int j = 0; j < 16; ++j) {
    y[j] = float((b[8 + j] & 15) | fifth(high, j)) * d + m;
    y[j + 16] = float((b[8 + j] >> 4) | fifth(high, j + 16)) * d + m;
  }
}
void q8_0(const Byte* b, float* y) {  // half d; 32 signed bytes
  float d = half_at(b);
  for (int j = 0; j < 32; ++j) y[j] = float(int8_t(b[2 + j])) * d;
}

// ---- 256 numbers

void q2_k(const Byte* b, float* y) {  // 16 bytes of scale and minimum, 4 bits each; 64 bytes; half d, dmin
  const Byte *scales = b, *q = b + 16;
  float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int half = 0; half < 2; ++half, q += 32)
    for (int shift = 0; shift < 8; shift += 2)
      for (int part = 0; part < 2; ++part) {
        Byte s = *scales++;
        float scale = d * float(s & 15), minimum = dmin * float(s >> 4);
        for (int l = 0; l < 16; ++l) *y++ = scale * float(q[16 * part + l] >> shift & 3) - minimum;
      }
}
void q3_k(const Byte* b, float* y) {  // 32 bytes of third bits; 64 bytes; 12 bytes of sixteen 6-bit scales; half d
  const Byte *high = b, *q = b + 32, *packed = b + 96;
  float d = half_at(b + 108);
  int scales[16];
  for (int i = 0; i < 16; ++i) {  // four low bits in the first 8 bytes, two high bits in the last 4
    int low = i < 8 ? packed[i] & 15 : packed[i - 8] >> 4;
    scales[i] = (low | (packed[8 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32;
  }
  int n = 0, bit = 0;
  for (int half = 0; half < 2; ++half, q += 32)
    for (int shift = 0; shift < 8; shift += 2, ++bit)
      for (int part = 0; part < 2; ++part) {
        float scale = d * float(scales[n++]);
        for (int l = 16 * part; l < 16 * part + 16; ++l)
          *y++ = scale * float((q[l] >> shift & 3) - (high[l] >> bit & 1 ? 0 : 4));
      }
}
// Eight scales and eight minima of six bits in 12 bytes.
void scale_and_minimum(const Byte* p, int i, float& scale, float& minimum) {
  scale = float(i < 4 ? p[i] & 63 : (p[i + 4] & 15) | (p[i - 4] >> 6) << 4);
  minimum = float(i < 4 ? p[i + 4] & 63 : p[i + 4] >> 4 | (p[i] >> 6) << 4);
}
void q4_k(const Byte* b, float* y) {  // half d, dmin; 12 bytes of scales; 128 bytes
  float d = half_at(b), dmin = half_at(b + 2), scale, minimum;
  const Byte* q = b + 16;
  for (int i = 0; i < 8; ++i) {
    scale_and_minimum(b + 4, i, scale, minimum);
    for (int l = 0; l < 32; ++l) *y++ = d * scale * float(q[32 * (i / 2) + l] >> 4 * (i % 2) & 15) - dmin * minimum;
  }
}
void q5_k(const Byte* b, float* y) {  // half d, dmin; 12 bytes of scales; 32 bytes of fifth bits; 128 bytes
  float d = half_at(b), dmin = half_at(b + 2), scale, minimum;
  const Byte *high = b + 16, *q = b + 48;
  for (int i = 0; i < 8; ++i) {
    scale_and_minimum(b + 4, i, scale, minimum);
    for (int l = 0; l < 32; ++l) {
      int v = (q[32 * (i / 2) + l] >> 4 * (i % 2) & 15) | (high[l] >> i & 1) << 4;
      *y++ = d * scale * float(v) - dmin * minimum;
    }
  }
}
void q6_k(const Byte* b, float* y) {  // 128 bytes of low bits; 64 of high bits; 16 signed scales; half d
  const Byte *low = b, *high = b + 128, *scales = b + 192;
  float d = half_at(b + 208);
  for (int half = 0; half < 2; ++half, low += 64, high += 32, scales += 8)
    for (int part = 0; part < 4; ++part)
      for (int l = 0; l < 32; ++l) {
        int four = low[32 * (part % 2) + l] >> 4 * (part / 2) & 15;
        int v = (four | (high[l] >> 2 * part & 3) << 4) - 32;
        *y++ = d * float(int8_t(scales[2 * part + l / 16])) * float(v);
      }
}

using Decode = void (*)(const Byte*, float*);
Decode decoder(std::string_view name) {
  constexpr std::pair<std::string_view, Decode> all[] = {{"Q4_0", q4_0}, {"Q4_1", q4_1}, {"Q5_0", q5_0}, {"Q5_1", q5_1},
                                                         {"Q8_0", q8_0}, {"Q2_K", q2_k}, {"Q3_K", q3_k}, {"Q4_K", q4_k},
                                                         {"Q5_K", q5_k}, {"Q6_K", q6_k}};
  for (auto& [n, f] : all)
    if (n == name) return f;
  fail<NotSupported>("gguf: the format ", std::string(name), " is not read");
}

}  // namespace

void dequantize_gguf(const GgufFormat& format, const std::byte* data, int64_t blocks, Tensor& out) {
  Decode decode = decoder(format.name);
  auto* bytes = reinterpret_cast<const Byte*>(data);
  visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      T* y = out.data<T>();
      parallel_for(blocks, 64, [&](int64_t begin, int64_t end) {
        float buffer[256];
        for (int64_t i = begin; i < end; ++i) {
          const Byte* block = bytes + i * format.bytes;
          T* to = y + i * format.block;
          if constexpr (std::is_same_v<T, float>) {
            decode(block, to);
          } else {
            decode(block, buffer);
            for (uint32_t j = 0; j < format.block; ++j) to[j] = from_float<T>(buffer[j]);
          }
        }
      });
    }
  });
}

}  // namespace sf::io
