// fuse: a function of pointwise ops as one pass over memory.
//
//   auto gate = sf::fuse([](const Tensor& x, const Tensor& a, const Tensor& b) { return silu(x * a + b); });
//   Tensor y = gate(x, a, b);
//
// The function is run once on stand-ins without values for each set of shapes, dtypes and layouts, and the pointwise
// ops and casts that it applies are kept. A call then computes all of them in one loop over vectors or blocks of the
// first cache (CPU), or in one generated kernel (CUDA).
// Every op rounds its result to its dtype as it does alone: on the CPU the numbers are those of the unfused function,
// bit for bit.
// Gradients: backward runs the function's own ops again from the saved arguments, so that only the arguments are kept.
// ValueError that names the op where the function does anything else (a view, a reduction, a write in place), or reads
// a tensor that is no argument. What the function computes from Python or C++ values is fixed when it is run for a set
// of shapes.
#pragma once
#include <functional>
#include <memory>

#include "scaffolding/core/tensor.h"

namespace sf {

// Copies share what was traced. May be called from several threads.
class Fused {
 public:
  using Function = std::function<Tensor(const Tensors& arguments)>;
  explicit Fused(Function f);
  Tensor operator()(const Tensors& arguments) const;
  int64_t traces() const;                                   // how often the function was run on stand-ins so far
  std::string cuda_source(const Tensors& arguments) const;  // of the kernel that these arguments would run on a GPU

  struct State;

 private:
  std::shared_ptr<State> state_;
};

namespace detail {
template <class F, size_t... i> Tensor call_with(const F& f, const Tensors& a, std::index_sequence<i...>) {
  return f(a[i]...);
}
template <class F> struct Arity : Arity<decltype(&F::operator())> {};
template <class R, class C, class... A> struct Arity<R (C::*)(A...) const> {
  static constexpr size_t value = sizeof...(A);
};
template <class R, class... A> struct Arity<R (*)(A...)> { static constexpr size_t value = sizeof...(A); };
}  // namespace detail

// f: a lambda or a function of Tensors that returns a Tensor.
template <class F> auto fuse(F f) {
  constexpr size_t n = detail::Arity<F>::value;
  Fused fused([f](const Tensors& a) -> Tensor { return detail::call_with(f, a, std::make_index_sequence<n>()); });
  return [fused]<class... A>(const A&... arguments) {
    static_assert(sizeof...(A) == n, "fuse: as many tensors as the function takes");
    return fused(Tensors{arguments...});
  };
}

}  // namespace sf
