// Numbers to codes of int8 on vectors. Compiled without contraction (cmake/sources.cmake).
#include "scaffolding/core/parallel.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/quantize/int8_lanes.h"

namespace sf {
namespace SF_ISA {

// The largest magnitude; NaN where one is not finite.
template <class T> static float largest_of(const T* x, int64_t n) {
  vf largest[2] = {vf(0.f), vf(0.f)}, wrong[2] = {vf(0.f), vf(0.f)};  // wrong: NaN once something is not finite
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const vf v = load(x + i + j * kLanes);
      largest[j] = max(largest[j], abs(v)), wrong[j] += v - v;
    }
  for (; i < n; i += kLanes) {
    const vf v = load_n(x + i, n - i < kLanes ? int(n - i) : kLanes);
    largest[0] = max(largest[0], abs(v)), wrong[0] += v - v;
  }
  const float bad = reduce_add(wrong[0] + wrong[1]);
  return bad == 0 ? reduce_max(max(largest[0], largest[1])) : __builtin_nanf("");
}

template <class T> static void codes_of(const T* x, int64_t n, float by, int8_t* codes) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_codes(codes + i, load(x + i) * vf(by));
  if (i < n) store_codes(codes + i, load_n(x + i, int(n - i)) * vf(by), int(n - i));
}

template <class T> static void quantize(const Int8Quantize& q) {
  constexpr int64_t kPiece = 16384;  // numbers that are worth a thread
  const int64_t rows = q.x.sizes[0], k = q.x.sizes[1];
  const T* x = q.x.as<const T>();
  int8_t* codes = q.codes.as<int8_t>();
  float* most = q.most.as<float>();
  const bool one = q.most.sizes[0] == 1;  // for all rows
  if (rows >= num_threads() || k <= kPiece) {
    parallel_for(rows, k < kPiece ? kPiece / k : 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        if (q.measure) most[r] = largest_of(x + r * k, k);
        codes_of(x + r * k, k, code_factor(most[one ? 0 : r]), codes + r * k);
      }
    });
    return;
  }
  const int64_t pieces = (k + kPiece - 1) / kPiece;
  for (int64_t r = 0; r < rows; ++r, x += k, codes += k) {
    auto each = [&](const auto& f) {
      parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) f(p * kPiece, p + 1 < pieces ? kPiece : k - p * kPiece);
      });
    };
    float& largest = most[one ? 0 : r];
    if (q.measure) {
      auto* of_pieces = static_cast<float*>(scratch(size_t(pieces) * sizeof(float), 0));
      each([&](int64_t i, int64_t n) { of_pieces[i / kPiece] = largest_of(x + i, n); });
      largest = largest_of_all(of_pieces, pieces);
    }
    const float by = code_factor(largest);
    each([&](int64_t i, int64_t n) { codes_of(x + i, n, by, codes + i); });
  }
}

static void run_int8_quantize(const Int8Quantize& q) {
  switch (q.x.dtype) {
    case kBFloat16: return quantize<BFloat16>(q);
    case kFloat16: return quantize<Half>(q);
    default: return quantize<float>(q);
  }
}

}  // namespace SF_ISA

SF_KERNEL(int8_quantize, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_int8_quantize, nullptr)

}  // namespace sf
