// The steps of fuse_steps.h. Each is a function that takes the vectors in registers, as its arguments, and ends with
// the call of the next one.
#include "scaffolding/ops/fuse/fuse_steps.h"
#include "scaffolding/ops/pointwise/row_math.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int kVectors = 8, kTile = kVectors * kLanes;
using Run = void (*)(const FusedStep*, int64_t, vf_raw, vf_raw, vf_raw, vf_raw, vf_raw, vf_raw, vf_raw, vf_raw);
using AnyRun = void (*)();
constexpr int kAhead = 2048;  // bytes: the own prefetching of a processor stops at the end of a page

// at: of the tile's first element within the piece.
template <class S>
void step(const FusedStep* s, int64_t at, vf_raw v0, vf_raw v1, vf_raw v2, vf_raw v3, vf_raw v4, vf_raw v5, vf_raw v6,
          vf_raw v7) {
  vf v[kVectors] = {v0, v1, v2, v3, v4, v5, v6, v7};
  S::apply(*s, at, v);
  if constexpr (!S::last)
    reinterpret_cast<Run>(s[1].run)(s + 1, at, v[0].v, v[1].v, v[2].v, v[3].v, v[4].v, v[5].v, v[6].v, v[7].v);
}
template <class S> AnyRun any() { return reinterpret_cast<AnyRun>(&step<S>); }

template <class T> SF_INLINE T* elements(const FusedStep& s, int64_t at, int k = 0) {
  return static_cast<T*>(const_cast<void*>(s.data[k])) + (at & s.mask[k]);
}
template <class F> SF_INLINE void each(F f) {
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) f(i);
}

// As load(store(x)) in T's memory.
template <class T> SF_INLINE vf rounded(vf x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
#if defined(__AVX512F__)  // to nearest, halves to even; the last instruction but one makes NaN of NaN
    __m512i u = (__m512i)x.v;
    __mmask16 odd = _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000));
    __m512i up = _mm512_add_epi32(u, _mm512_mask_mov_epi32(_mm512_set1_epi32(0x7fff), odd, _mm512_set1_epi32(0x8000)));
    __m512 y = _mm512_fixupimm_ps((__m512)up, (__m512)u, _mm512_set1_epi32(0x22), 0);
    return (vf_raw)_mm512_and_si512((__m512i)y, _mm512_set1_epi32(int32_t(0xffff0000)));
#else
    vi_raw u = bits(x), half = (u >> 16) & 1;
    return from_bits(bits(select(x == x, from_bits(u + 0x7fff + half), from_bits(u | 0x400000))) & int32_t(0xffff0000));
#endif
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

// Two vectors and their bfloat16 in one register: of a vector, a conversion costs half of what it costs alone, and
// widening one instruction, not two.
#if defined(__AVX512BW__)
SF_INLINE void widen(__m512i h, vf& a, vf& b) {
  const __m512i low = _mm512_set_epi16(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4,
                                       4, 3, 3, 2, 2, 1, 1, 0, 0);
  const __m512i high = _mm512_set_epi16(31, 31, 30, 30, 29, 29, 28, 28, 27, 27, 26, 26, 25, 25, 24, 24, 23, 23, 22, 22,
                                        21, 21, 20, 20, 19, 19, 18, 18, 17, 17, 16, 16);
  a = (vf_raw)_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, low, h);
  b = (vf_raw)_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, high, h);
}
SF_INLINE void load_pair(const BFloat16* p, vf& a, vf& b) { widen(_mm512_loadu_si512(p), a, b); }
#else
SF_INLINE void load_pair(const BFloat16* p, vf& a, vf& b) {
  a = load(p);
  b = load(p + kLanes);
}
#endif
#if defined(__AVX512BF16__)
SF_INLINE __m512i narrowed(vf a, vf b) { return (__m512i)_mm512_cvtne2ps_pbh((__m512)b.v, (__m512)a.v); }
SF_INLINE void store_pair(BFloat16* p, vf a, vf b) { _mm512_storeu_si512(p, narrowed(a, b)); }
SF_INLINE void round_pair(vf& a, vf& b) { widen(narrowed(a, b), a, b); }
#else
SF_INLINE void store_pair(BFloat16* p, vf a, vf b) {
  a = rounded<BFloat16>(a);
  b = rounded<BFloat16>(b);
#if defined(__AVX512BW__)
  const __m512i upper = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25,
                                         23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  _mm512_storeu_si512(p, _mm512_permutex2var_epi16((__m512i)a.v, upper, (__m512i)b.v));
#elif defined(__AVX2__)
  __m256i h = _mm256_packus_epi32(_mm256_srli_epi32((__m256i)a.v, 16), _mm256_srli_epi32((__m256i)b.v, 16));
  _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(h, 0xd8));
#else
  store(p, a);
  store(p + kLanes, b);
#endif
}
SF_INLINE void round_pair(vf& a, vf& b) {
  a = rounded<BFloat16>(a);
  b = rounded<BFloat16>(b);
}
#endif
template <class T> inline constexpr bool kPairs = std::is_same_v<T, BFloat16>;
template <class F> SF_INLINE void each_pair(F f) {
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; i += 2) f(i);
}

// A bool in a register is 0 or 1.
using SF_ISA::load;
using SF_ISA::store;
typedef uint8_t vb_raw __attribute__((vector_size(kLanes)));
SF_INLINE vf load(const bool* p) {
  vb_raw b;
  std::memcpy(&b, p, sizeof b);
  return vf(__builtin_convertvector(b, vf_raw));
}
SF_INLINE void store(bool* p, vf x) {
  vb_raw b = __builtin_convertvector((x != vf(0.f)).m, vb_raw) & 1;
  std::memcpy(p, &b, sizeof b);
}
SF_INLINE vf as_bool(vm m) { return select(m, vf(1.f), vf(0.f)); }
SF_INLINE vm operator!=(vm a, vm b) { return {a.m ^ b.m}; }

#define SF_COMPARE(name, expression, doc)                                                \
  struct name##_fn {                                                                     \
    template <class T> SF_INLINE static T y(T a, T b, T) { return as_bool(expression); } \
  };
#define SF_PREDICATE(name, expression, like, doc)                                      \
  struct name##_fn {                                                                   \
    template <class T> SF_INLINE static T y(T x, T, T) { return as_bool(expression); } \
  };
#include "scaffolding/ops/pointwise/compare.def"
#include "scaffolding/ops/pointwise/predicate.def"
#undef SF_COMPARE
#undef SF_PREDICATE

struct Continues {
  static constexpr bool last = false;
};
template <class T> struct Load : Continues {
  SF_INLINE static void apply(const FusedStep& s, int64_t at, vf (&v)[kVectors]) {
    auto* p = elements<const T>(s, at);
    if (s.mask[0] != 0)
      for (int i = 0; i < kTile * int(sizeof(T)); i += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(p) + kAhead + i);
    if constexpr (kPairs<T>) return each_pair([&](int i) { load_pair(p + i * kLanes, v[i], v[i + 1]); });
    each([&](int i) { v[i] = load(p + i * kLanes); });
  }
};
template <class T, bool ends, bool past_caches = false> struct Store {
  static constexpr bool last = ends;
  SF_INLINE static void apply(const FusedStep& s, int64_t at, vf (&v)[kVectors]) {
    auto* p = elements<T>(s, at);
    if constexpr (kPairs<T>) return each_pair([&](int i) { store_pair(p + i * kLanes, v[i], v[i + 1]); });
    each([&](int i) {
      if constexpr (past_caches) store_stream(p + i * kLanes, v[i]);
      else store(p + i * kLanes, v[i]);
    });
  }
};
template <class T> struct Round : Continues {
  SF_INLINE static void apply(const FusedStep&, int64_t, vf (&v)[kVectors]) {
    if constexpr (kPairs<T>) return each_pair([&](int i) { round_pair(v[i], v[i + 1]); });
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

// The condition is in the registers.
struct Where : Continues {
  SF_INLINE static void apply(const FusedStep& s, int64_t at, vf (&v)[kVectors]) {
    auto *a = elements<const float>(s, at), *b = elements<const float>(s, at, 1);
    each([&](int i) { v[i] = select(v[i] != vf(0.f), load(a + i * kLanes), load(b + i * kLanes)); });
  }
};

template <template <class> class S> AnyRun of_dtype(DType t) {
  return t == kFloat32 ? any<S<float>>() : t == kBFloat16 ? any<S<BFloat16>>() : any<S<Half>>();
}
template <class T> using LastStore = Store<T, true>;

struct Known {
  const KernelTableBase* op;
  AnyRun run, other;   // other: swapped, or for bfloat16
  bool bools = false;  // takes them too, as numbers
};
const Known* known(const KernelTableBase* op) {
  static const Known all[] = {
#define SF_UNARY(name, ...)                         \
  {&name##_forward, any<Unary<name##_fn, float>>(), \
   any<Unary<name##_fn, std::conditional_t<kShorter<name##_fn, BFloat16>, BFloat16, float>>>()},
#define SF_UNARY_P SF_UNARY
#define SF_BINARY(name, ...) {&name##_forward, any<Binary<name##_fn, false>>(), any<Binary<name##_fn, true>>()},
#define SF_BINARY_P SF_BINARY
#define SF_COMPARE(name, ...) {&name##_forward, any<Binary<name##_fn, false>>(), any<Binary<name##_fn, true>>(), true},
#define SF_PREDICATE(name, ...) {&name##_forward, any<Unary<name##_fn, float>>(), any<Unary<name##_fn, float>>(), true},
#include "scaffolding/ops/pointwise/binary.def"
#include "scaffolding/ops/pointwise/compare.def"
#include "scaffolding/ops/pointwise/predicate.def"
#include "scaffolding/ops/pointwise/unary.def"
#undef SF_UNARY
#undef SF_UNARY_P
#undef SF_BINARY
#undef SF_BINARY_P
#undef SF_COMPARE
#undef SF_PREDICATE
      {&bitwise_and_forward, any<Binary<logical_and_fn, false>>(), any<Binary<logical_and_fn, true>>(), true},
      {&bitwise_or_forward, any<Binary<logical_or_fn, false>>(), any<Binary<logical_or_fn, true>>(), true},
      {&bitwise_xor_forward, any<Binary<logical_xor_fn, false>>(), any<Binary<logical_xor_fn, true>>(), true},
      {&bitwise_not_forward, any<Unary<logical_not_fn, float>>(), any<Unary<logical_not_fn, float>>(), true},
  };
  for (auto& k : all)
    if (k.op == op) return &k;
  return nullptr;
}

AnyRun find(const FusedStepKind& s) {
  const Known* k = s.op ? known(s.op) : nullptr;
  if (s.op && (!k || (s.dtype == kBool && !k->bools))) return nullptr;
  switch (s.kind) {
    case FusedStepKind::Load: return s.dtype == kBool ? any<Load<bool>>() : of_dtype<Load>(s.dtype);
    case FusedStepKind::Keep: return any<Store<float, false>>();
    case FusedStepKind::Store: return s.dtype == kBool ? any<LastStore<bool>>() : of_dtype<LastStore>(s.dtype);
    case FusedStepKind::Stream: return any<Store<float, true, true>>();
    case FusedStepKind::Round: return of_dtype<Round>(s.dtype);
    case FusedStepKind::Unary: return s.dtype == kBFloat16 ? k->other : k->run;
    case FusedStepKind::Binary: return k->run;
    case FusedStepKind::Swapped: return k->other;
    case FusedStepKind::Lerp: return any<Lerp>();
    default: return any<Where>();
  }
}

void run(const FusedStep* steps, int64_t n) {
  const vf_raw nothing{};
  auto first = reinterpret_cast<Run>(steps->run);
  for (int64_t at = 0; at < n; at += kTile)
    first(steps, at, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing);
}
void finish() { stream_fence(); }

void offer(const FusedStepsQuery& q) { *q.steps = {kTile, &find, &run, &finish}; }
SF_KERNEL(fused_steps, DeviceType::CPU, "native", SF_ISA_PRIORITY, offer, nullptr)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
