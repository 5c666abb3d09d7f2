// Turns the lines of the .def files into functors, in whatever namespace includes this file after its scalar or vector
// maths: neg_fn::y<T>(x, p0, p1), neg_fn::dx<T>(dy, x, y, p0, p1), mul_fn::y<T>(a, b, p0), eq_fn::y<T>(a, b).
// No include guard: files compiled for an instruction set, the tape and CUDA each include it in a namespace of their
// own.
#define SF_UNARY_P(name, kind, saves, forward, backward)                                                            \
  struct name##_fn {                                                                                                \
    template <class T> SF_INLINE static T y([[maybe_unused]] T x, [[maybe_unused]] T p0, [[maybe_unused]] T p1) {   \
      return forward;                                                                                               \
    }                                                                                                               \
    template <class T>                                                                                              \
    SF_INLINE static T dx([[maybe_unused]] T dy, [[maybe_unused]] T x, [[maybe_unused]] T y, [[maybe_unused]] T p0, \
                          [[maybe_unused]] T p1) {                                                                  \
      return backward;                                                                                              \
    }                                                                                                               \
  };
#define SF_UNARY(name, kind, saves, forward, backward, like, doc) SF_UNARY_P(name, kind, saves, forward, backward)
#define SF_BINARY_P(name, kind, saves, forward, grad_a, grad_b)                                                    \
  struct name##_fn {                                                                                               \
    template <class T> SF_INLINE static T y(T a, T b, [[maybe_unused]] T p0) { return forward; }                   \
    template <class T>                                                                                             \
    SF_INLINE static T da([[maybe_unused]] T dy, [[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T y, \
                          [[maybe_unused]] T p0) {                                                                 \
      return grad_a;                                                                                               \
    }                                                                                                              \
    template <class T>                                                                                             \
    SF_INLINE static T db([[maybe_unused]] T dy, [[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T y, \
                          [[maybe_unused]] T p0) {                                                                 \
      return grad_b;                                                                                               \
    }                                                                                                              \
  };
#define SF_BINARY(name, kind, saves, forward, grad_a, grad_b, like, doc) \
  SF_BINARY_P(name, kind, saves, forward, grad_a, grad_b)
#include "scaffolding/ops/pointwise/binary.def"
#include "scaffolding/ops/pointwise/unary.def"
#undef SF_UNARY
#undef SF_UNARY_P
#undef SF_BINARY
#undef SF_BINARY_P
