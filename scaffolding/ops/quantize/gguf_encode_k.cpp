// The K formats: 256 numbers in parts of 16 or 32, each with a scale (and a minimum) of few bits, which are themselves
// times a float16. First each part's own scale is sought, by least squares over guesses; then the scales are rounded,
// and every number takes the code that is nearest then.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "scaffolding/ops/quantize/gguf_codes.h"
#include "scaffolding/ops/quantize/gguf_encode.h"

namespace sf {

namespace {

// The nearest whole number to x within [low, high], halves to even: a loop of it becomes vectors.
inline float whole(float x, float low, float high) {
  constexpr float kShift = 12582912;  // 1.5 * 2^23
  return (std::min(std::max(x, low), high) + kShift) - kShift;
}
float as_half(float x) { return to_float(from_float<Half>(x)); }

// x = scale * code - minimum
struct Affine {
  float scale = 0, minimum = 0;
};

int affine_code(float x, Affine a, int most) {
  return int(whole((x + a.minimum) * inverse_or_0(a.scale), 0, float(most)));
}
// Sums go over four lanes, which compilers make a vector of without reordering anything.
float affine_error(const float* x, int n, Affine a, int most) {
  const float scale = inverse_or_0(a.scale);
  float sum[4] = {};
  for (int j = 0; j < n; j += 4)
    for (int l = 0; l < 4; ++l) {
      const float e = a.scale * whole((x[j + l] + a.minimum) * scale, 0, float(most)) - a.minimum - x[j + l];
      sum[l] += e * e;
    }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// The scale and minimum (both at least 0) of n numbers with codes 0 .. most.
Affine fit_affine(const float* x, int n, int most) {
  const float low = std::min(0.f, *std::min_element(x, x + n)), high = *std::max_element(x, x + n);
  if (high <= low) return {0, -low};
  Affine best{(high - low) / float(most), -low};
  float least = affine_error(x, n, best, most), x1 = 0;
  for (int j = 0; j < n; ++j) x1 += x[j];
  for (int step = -5; step <= 5; ++step) {
    Affine a{(high - low) / (float(most) + 0.2f * float(step)), -low};
    if (a.scale <= 0) continue;
    for (int round = 0; round < 2; ++round) {  // codes of the guess, the least squares of those codes, and again
      float sums[3][4] = {};
      const float scale = inverse_or_0(a.scale);
      for (int j = 0; j < n; j += 4)
        for (int l = 0; l < 4; ++l) {
          const float q = whole((x[j + l] + a.minimum) * scale, 0, float(most));
          sums[0][l] += q, sums[1][l] += q * q, sums[2][l] += x[j + l] * q;
        }
      auto total = [&](int i) { return (sums[i][0] + sums[i][1]) + (sums[i][2] + sums[i][3]); };
      const float q1 = total(0), q2 = total(1), xq = total(2);
      const float det = float(n) * q2 - q1 * q1;
      if (det <= 0) break;
      a = {(float(n) * xq - q1 * x1) / det, (q1 * xq - q2 * x1) / det};
      if (a.minimum < 0) a = {q2 > 0 ? xq / q2 : 0, 0};
      if (a.scale <= 0) break;
      const float error = affine_error(x, n, a, most);
      if (error < least) least = error, best = a;
    }
  }
  return best;
}

// Scales and minima of the parts as integers up to `most`, times d and dmin. Both floats are tried a little off what
// the largest part asks for.
struct AffineParts {
  float d = 0, dmin = 0;
  int scales[16] = {}, minima[16] = {};
};
AffineParts affine_parts(const float* x, int parts, int size, int codes, int most) {
  Affine own[16];
  float scale = 0, minimum = 0;
  for (int i = 0; i < parts; ++i) {
    own[i] = fit_affine(x + i * size, size, codes);
    scale = std::max(scale, own[i].scale), minimum = std::max(minimum, own[i].minimum);
  }
  AffineParts best;
  float least = INFINITY;
  // With few bits for scales, what they are rounded to matters more than where they were best.
  const int tries = most < 63 ? 4 : 1;
  for (int a = 0; a < tries; ++a)
    for (int b = 0; b < tries; ++b) {
      AffineParts p;
      p.d = as_half(scale / (float(most) - 0.4f * float(a))),
      p.dmin = as_half(minimum / (float(most) - 0.4f * float(b)));
      float error = 0;
      for (int i = 0; i < parts; ++i) {
        auto rounded = [&](float v, float unit) { return int(whole(v * inverse_or_0(unit), 0, float(most))); };
        const int s = rounded(own[i].scale, p.d), m = rounded(own[i].minimum, p.dmin);
        float part = INFINITY;
        for (int ds = -1; ds <= 1; ++ds)
          for (int dm = -1; dm <= 1; ++dm) {
            if (s + ds < 0 || s + ds > most || m + dm < 0 || m + dm > most) continue;
            const Affine rough{p.d * float(s + ds), p.dmin * float(m + dm)};
            const float e = affine_error(x + i * size, size, rough, codes);
            if (e < part) part = e, p.scales[i] = s + ds, p.minima[i] = m + dm;
          }
        error += part;
      }
      // The first as it is: a scale that is none in float16 is told by it.
      if ((a == 0 && b == 0) || error < least) least = error, best = p;
    }
  return best;
}

// x = scale * code, code -n .. n - 1; a scale of either sign.
int signed_code(float x, float scale, int n) { return int(whole(x * inverse_or_0(scale), -float(n), float(n - 1))); }
float signed_error(const float* x, int size, float scale, int n) {
  const float i = inverse_or_0(scale);
  float sum[4] = {};
  for (int j = 0; j < size; j += 4)
    for (int l = 0; l < 4; ++l) {
      const float e = scale * whole(x[j + l] * i, -float(n), float(n - 1)) - x[j + l];
      sum[l] += e * e;
    }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
float fit_signed(const float* x, int size, int n) {
  float most = 0;
  for (int j = 0; j < size; ++j)
    if (std::fabs(x[j]) > std::fabs(most)) most = x[j];
  if (most == 0) return 0;
  float best = 0, least = INFINITY;
  for (int step = -5; step <= 5; ++step)
    for (const float end : {-float(n), float(n - 1)}) {
      const float guess = (end + 0.18f * float(step)) / most;
      float sums[2][4] = {};
      for (int j = 0; j < size; j += 4)
        for (int l = 0; l < 4; ++l) {
          const float q = whole(x[j + l] * guess, -float(n), float(n - 1));
          sums[0][l] += x[j + l] * q, sums[1][l] += q * q;
        }
      auto total = [&](int i) { return (sums[i][0] + sums[i][1]) + (sums[i][2] + sums[i][3]); };
      const float xq = total(0), q2 = total(1);
      if (q2 == 0) continue;
      const float error = signed_error(x, size, xq / q2, n);
      if (error < least) least = error, best = xq / q2;
    }
  return best;
}

// Sixteen scales as signed integers of -most .. most - 1, times d.
struct SignedParts {
  float d = 0;
  int scales[16] = {};
};
SignedParts signed_parts(const float* x, int n, int most) {
  float own[16], largest = 0;
  for (int i = 0; i < 16; ++i) {
    own[i] = fit_signed(x + 16 * i, 16, n);
    if (std::fabs(own[i]) > std::fabs(largest)) largest = own[i];
  }
  SignedParts p;
  p.d = as_half(largest / float(-most));
  if (p.d == 0) return p;
  for (int i = 0; i < 16; ++i) {
    const int s = signed_code(own[i], p.d, most);
    float least = INFINITY;
    for (int at = std::max(-most, s - 1); at <= std::min(most - 1, s + 1); ++at) {
      const float e = signed_error(x + 16 * i, 16, p.d * float(at), n);
      if (e < least) least = e, p.scales[i] = at;
    }
  }
  return p;
}

// The inverse of scale_and_minimum().
void put_scales_and_minima(uint8_t* p, const AffineParts& parts) {
  for (int i = 0; i < 4; ++i) {
    const int s = parts.scales[i + 4], m = parts.minima[i + 4];
    p[i] = uint8_t(parts.scales[i] | (s >> 4) << 6);
    p[i + 4] = uint8_t(parts.minima[i] | (m >> 4) << 6);
    p[i + 8] = uint8_t((s & 15) | (m & 15) << 4);
  }
}

}  // namespace

void encode_Q2_K(const float* x, uint8_t* b) {
  const AffineParts p = affine_parts(x, 16, 16, 3, 15);
  std::memset(b, 0, 84);
  put_half(b + 80, p.d);
  put_half(b + 82, p.dmin);
  for (int i = 0; i < 16; ++i) {
    b[i] = uint8_t(p.scales[i] | p.minima[i] << 4);
    const Affine a{p.d * float(p.scales[i]), p.dmin * float(p.minima[i])};
    uint8_t* q = b + 16 + 32 * (i / 8) + 16 * (i % 2);
    for (int l = 0; l < 16; ++l) q[l] |= uint8_t(affine_code(x[16 * i + l], a, 3) << 2 * (i % 8 / 2));
  }
}

void encode_Q3_K(const float* x, uint8_t* b) {
  const SignedParts p = signed_parts(x, 4, 32);
  std::memset(b, 0, 110);
  put_half(b + 108, p.d);
  for (int i = 0; i < 16; ++i) {
    const int s = p.scales[i] + 32;
    b[96 + i % 8] |= uint8_t(i < 8 ? s & 15 : (s & 15) << 4);
    b[104 + i % 4] |= uint8_t((s >> 4) << 2 * (i / 4));
    uint8_t *q = b + 32 + 32 * (i / 8) + 16 * (i % 2), *high = b + 16 * (i % 2);
    for (int l = 0; l < 16; ++l) {
      const int c = signed_code(x[16 * i + l], p.d * float(p.scales[i]), 4) + 4;
      q[l] |= uint8_t((c & 3) << 2 * (i % 8 / 2));
      high[l] |= uint8_t((c >> 2) << i / 2);
    }
  }
}

void encode_Q4_K(const float* x, uint8_t* b) {
  const AffineParts p = affine_parts(x, 8, 32, 15, 63);
  std::memset(b, 0, 144);
  put_half(b, p.d);
  put_half(b + 2, p.dmin);
  put_scales_and_minima(b + 4, p);
  for (int i = 0; i < 8; ++i) {
    const Affine a{p.d * float(p.scales[i]), p.dmin * float(p.minima[i])};
    for (int l = 0; l < 32; ++l) b[16 + 32 * (i / 2) + l] |= uint8_t(affine_code(x[32 * i + l], a, 15) << 4 * (i % 2));
  }
}

void encode_Q5_K(const float* x, uint8_t* b) {
  const AffineParts p = affine_parts(x, 8, 32, 31, 63);
  std::memset(b, 0, 176);
  put_half(b, p.d);
  put_half(b + 2, p.dmin);
  put_scales_and_minima(b + 4, p);
  for (int i = 0; i < 8; ++i) {
    const Affine a{p.d * float(p.scales[i]), p.dmin * float(p.minima[i])};
    for (int l = 0; l < 32; ++l) {
      const int c = affine_code(x[32 * i + l], a, 31);
      b[48 + 32 * (i / 2) + l] |= uint8_t((c & 15) << 4 * (i % 2));
      b[16 + l] |= uint8_t((c >> 4) << i);
    }
  }
}

void encode_Q6_K(const float* x, uint8_t* b) {
  const SignedParts p = signed_parts(x, 32, 128);
  std::memset(b, 0, 210);
  put_half(b + 208, p.d);
  for (int i = 0; i < 16; ++i) {
    const int half = i / 8, quarter = i % 8 / 2, at = 16 * (i % 2);
    b[192 + i] = uint8_t(int8_t(p.scales[i]));
    uint8_t *low = b + 64 * half + 32 * (quarter % 2) + at, *high = b + 128 + 32 * half + at;
    for (int l = 0; l < 16; ++l) {
      const int c = signed_code(x[16 * i + l], p.d * float(p.scales[i]), 32) + 32;
      low[l] |= uint8_t((c & 15) << 4 * (quarter / 2));
      high[l] |= uint8_t((c >> 4) << 2 * quarter);
    }
  }
}

}  // namespace sf
