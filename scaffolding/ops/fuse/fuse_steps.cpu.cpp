// The steps of fuse_steps.h. Each is a function that takes the vectors in registers, as its arguments, and ends with the call of the next one.
#include "scaffolding/ops/fuse/fuse_steps.h"
#include "scaffolding/ops/pointwise/row_math.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int kVectors = 8, kTile = kVectors * kLanes;
using Run = void (*)(const FusedStep*, int64_t, vf_raw, vf_raw, vf_raw, vf_raw, vf_raw, vf_raw, vf_raw, vf_raw);
using AnyRun = void (*)();

// at: of the tile's first element within the piece.
template <class S> void step(const FusedStep* s, int64_t at, vf_raw v0, vf_raw v1, vf_raw v2, vf_raw v3, vf_raw v4, vf_raw v5, vf_raw v6, vf_raw v7) {
  vf v[kVectors] = {v0, v1, v2, v3, v4, v5, v6, v7};
  S::apply(*s, at, v);
  if constexpr (!S::last) reinterpret_cast<Run>(s[1].run)(s + 1, at, v[0].v, v[1].v, v[2].v, v[3].v, v[4].v, v[5].v, v[6].v, v[7].v);
}
template <class S> AnyRun any() { return reinterpret_cast<AnyRun>(&step<S>); }

template <class T> SF_INLINE T* elements(const FusedStep& s, int64_t at, int k = 0) { return static_cast<T*>(const_cast<void*>(s.data[k])) + (at & s.mask[k]); }
template <class F> SF_INLINE void each(F f) {
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) f(i);
}

// As load(store(x)) in T's memory.
template <class T> SF_INLINE vf rounded(vf x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    vi_raw u = bits(x), half = (u >> 16) & 1;
    return select(x == x, from_bits((u + 0x7fff + half) & int32_t(0xffff0000)), from_bits((u & int32_t(0xffff0000)) | 0x400000));
  } else {
#if defined(__AVX512F__)
    return (vf_raw)_mm512_cvtph_ps(_mm512_cvtps_ph((__m512)x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
    return (vf_raw)_mm256_cvtph_ps(_mm256_cvtps_ph((__m256)x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
    T t[kLanes];
    store(t, x);
    return load(t);
#endif
  }
}

#if defined(__AVX512BF16__)
// Two vectors and their 32 bfloat16 in one register: of a vector, a conversion costs half of what it costs alone, and widening one instruction, not two.
SF_INLINE __m512i narrowed(vf a, vf b) { return (__m512i)_mm512_cvtne2ps_pbh((__m512)b.v, (__m512)a.v); }
SF_INLINE void widen(__m512i h, vf& a, vf& b) {
  const __m512i low = _mm512_set_epi16(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  const __m512i high =
      _mm512_set_epi16(31, 31, 30, 30, 29, 29, 28, 28, 27, 27, 26, 26, 25, 25, 24, 24, 23, 23, 22, 22, 21, 21, 20, 20, 19, 19, 18, 18, 17, 17, 16, 16);
  a = (vf_raw)_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, low, h);
  b = (vf_raw)_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, high, h);
}
template <class T> inline constexpr bool kPairs = std::is_same_v<T, BFloat16>;
template <class F> SF_INLINE void each_pair(F f) {
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; i += 2) f(i);
}
#endif

struct Continues {
  static constexpr bool last = false;
};
template <class T> struct Load : Continues {
  SF_INLINE static void apply(const FusedStep& s, int64_t at, vf (&v)[kVectors]) {
    auto* p = elements<const T>(s, at);
#if defined(__AVX512BF16__)
    if constexpr (kPairs<T>) return each_pair([&](int i) { widen(_mm512_loadu_si512(p + i * kLanes), v[i], v[i + 1]); });
#endif
    each([&](int i) { v[i] = load(p + i * kLanes); });
  }
};
template <class T, bool ends, bool past_caches = false> struct Store {
  static constexpr bool last = ends;
  SF_INLINE static void apply(const FusedStep& s, int64_t at, vf (&v)[kVectors]) {
    auto* p = elements<T>(s, at);
#if defined(__AVX512BF16__)
    if constexpr (kPairs<T>) return each_pair([&](int i) { _mm512_storeu_si512(p + i * kLanes, narrowed(v[i], v[i + 1])); });
#endif
    each([&](int i) {
      if constexpr (past_caches) store_stream(p + i * kLanes, v[i]);
      else store(p + i * kLanes, v[i]);
    });
  }
};
template <class T> struct Round : Continues {
  SF_INLINE static void apply(const FusedStep&, int64_t, vf (&v)[kVectors]) {
#if defined(__AVX512BF16__)
    if constexpr (kPairs<T>) return each_pair([&](int i) { widen(narrowed(v[i], v[i + 1]), v[i], v[i + 1]); });
#endif
    each([&](int i) { v[i] = rounded<T>(v[i]); });
  }
};
template <class F, class T> struct Unary : Continues {
  SF_INLINE static void apply(const FusedStep& s, int64_t, vf (&v)[kVectors]) {
    const vf p0(s.p0), p1(s.p1);
    each([&](int i) { v[i] = value_for<F, T>(v[i], p0, p1); });
  }
};
template <class F, bool swapped> struct Binary : Continues {
  SF_INLINE static void apply(const FusedStep& s, int64_t at, vf (&v)[kVectors]) {
    auto* p = elements<const float>(s, at);
    const vf p0(s.p0);
    each([&](int i) {
      vf other = load(p + i * kLanes);
      v[i] = swapped ? F::template y<vf>(other, v[i], p0) : F::template y<vf>(v[i], other, p0);
    });
  }
};
struct Lerp : Continues {
  SF_INLINE static void apply(const FusedStep& s, int64_t at, vf (&v)[kVectors]) {
    auto *b = elements<const float>(s, at), *w = elements<const float>(s, at, 1);
    each([&](int i) { v[i] = lerp_of<vf>(v[i], load(b + i * kLanes), load(w + i * kLanes)); });
  }
};

template <template <class> class S> AnyRun of_dtype(DType t) { return t == kFloat32 ? any<S<float>>() : t == kBFloat16 ? any<S<BFloat16>>() : any<S<Half>>(); }
template <class T> using LastStore = Store<T, true>;

struct Known {
  const KernelTableBase* op;
  AnyRun run, other;  // other: swapped, or for bfloat16
};
const Known* known(const KernelTableBase* op) {
  static const Known all[] = {
#define SF_UNARY(name, ...) \
  {&name##_forward, any<Unary<name##_fn, float>>(), any<Unary<name##_fn, std::conditional_t<kShorter<name##_fn, BFloat16>, BFloat16, float>>>()},
#define SF_UNARY_P SF_UNARY
#define SF_BINARY(name, ...) {&name##_forward, any<Binary<name##_fn, false>>(), any<Binary<name##_fn, true>>()},
#define SF_BINARY_P SF_BINARY
#include "scaffolding/ops/pointwise/binary.def"
#include "scaffolding/ops/pointwise/unary.def"
#undef SF_UNARY
#undef SF_UNARY_P
#undef SF_BINARY
#undef SF_BINARY_P
  };
  for (auto& k : all)
    if (k.op == op) return &k;
  return nullptr;
}

AnyRun find(const FusedStepKind& s) {
  if (s.dtype != kFloat32 && s.dtype != kBFloat16 && s.dtype != kFloat16) return nullptr;
  const Known* k = s.op ? known(s.op) : nullptr;
  switch (s.kind) {
    case FusedStepKind::Load: return of_dtype<Load>(s.dtype);
    case FusedStepKind::Keep: return any<Store<float, false>>();
    case FusedStepKind::Store: return of_dtype<LastStore>(s.dtype);
    case FusedStepKind::Stream: return any<Store<float, true, true>>();
    case FusedStepKind::Round: return of_dtype<Round>(s.dtype);
    case FusedStepKind::Unary: return !k ? nullptr : s.dtype == kBFloat16 ? k->other : k->run;
    case FusedStepKind::Binary: return k ? k->run : nullptr;
    case FusedStepKind::Swapped: return k ? k->other : nullptr;
    default: return any<Lerp>();
  }
}

void run(const FusedStep* steps, int64_t n) {
  const vf_raw nothing{};
  auto first = reinterpret_cast<Run>(steps->run);
  for (int64_t at = 0; at < n; at += kTile) first(steps, at, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing);
}
void finish() { stream_fence(); }

void offer(const FusedStepsQuery& q) { *q.steps = {kTile, &find, &run, &finish}; }
SF_KERNEL(fused_steps, DeviceType::CPU, "native", SF_ISA_PRIORITY, offer, nullptr)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
