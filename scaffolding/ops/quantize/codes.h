// The tables of numbers that codes stand for. Compiled for instruction sets too: static,
// so that none is shared between them.
#pragma once
#include "scaffolding/core/half.h"

namespace sf {

// NormalFloat4 (QLoRA, arXiv 2305.14314, appendix E): the numbers of bitsandbytes' table.
struct Nf4Table {
  float v[16];
};
static constexpr Nf4Table kNf4 = {
    {-1.f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,
     -0.18477343022823334f, -0.09105003625154495f, 0.f, 0.07958029955625534f, 0.16093020141124725f,
     0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.f}};

// bitsandbytes' FP4: a sign, and one of eight magnitudes by the other three bits. In the order of the numbers its codes
// are kFp4Sorted, whose numbers are kFp4Ascending; what is above 0 and below the first middle has the code of -0.
struct Fp4Codes {
  uint8_t v[16];
};
static constexpr Nf4Table kFp4 = {{0.f, 0.0052083334885537624f, 0.6666666865348816f, 1.f, 0.3333333432674408f, 0.5f,
                                   0.1666666716337204f, 0.25f, 0.f, -0.0052083334885537624f, -0.6666666865348816f, -1.f,
                                   -0.3333333432674408f, -0.5f, -0.1666666716337204f, -0.25f}};
static constexpr Fp4Codes kFp4Sorted = {{11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3}};
constexpr Nf4Table sorted_fp4() {
  Nf4Table t{};
  for (int i = 0; i < 16; ++i) t.v[i] = kFp4.v[kFp4Sorted.v[i]];
  return t;
}
static constexpr Nf4Table kFp4Ascending = sorted_fp4();

// The signed dynamic map of "8-Bit Approximations for Parallelism in Deep Learning" (arXiv 1511.04561) as bitsandbytes'
// create_dynamic_map() rounds it: for each of seven powers of ten the middles between 2^i + 1 even steps of [0.1, 1],
// both signs, with 0 and 1.
struct DynamicTable {
  float v[256];
};
constexpr DynamicTable make_dynamic_table() {
  DynamicTable t{};
  constexpr float kPowers[7] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.f};
  int positive = 128;  // v[127] is 0
  for (int i = 0; i < 7; ++i) {
    int n = 1 << i;
    const float step = (1.f - 0.1f) / float(n);
    // From the nearer end and with one rounding, as torch.linspace does.
    auto boundary = [&](int k) {
      return k < (n + 1) / 2 ? float(0.1f + double(step) * k) : float(1.f - double(step) * (n - k));
    };
    for (int k = 0; k < n; ++k) {
      float middle = kPowers[i] * ((boundary(k) + boundary(k + 1)) / 2.f);
      t.v[positive] = middle;
      t.v[254 - positive] = -middle;
      ++positive;
    }
  }
  t.v[255] = 1.f;
  return t;
}
static constexpr DynamicTable kDynamic = make_dynamic_table();

// How many of the middles between neighbours in a sorted table are below x: the nearest entry's index,
// the lower one of two that are as near.
template <int N> SF_INLINE constexpr int nearest_code(const float (&table)[N], float x) {
  int low = 0, high = N - 1;
  while (low < high) {
    int middle = (low + high) / 2;
    if (x > (table[middle] + table[middle + 1]) / 2.f) low = middle + 1;
    else high = middle;
  }
  return low;
}

}  // namespace sf
