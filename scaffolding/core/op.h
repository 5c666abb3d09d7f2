// SF_OP: an op is a C++ function plus one line that gives parameter names and defaults in Python syntax.
//
//   SF_OP(group_norm, "input, num_groups, weight=None, bias=None, eps=1e-5")
//       .doc("Normalise each of num_groups channel groups of input[N, C, ...], then scale and shift per channel.")
//       .like("torch.nn.functional.group_norm");
//
// Types and arity come from the function (a wrong count of names is a compile error). Python, the command line, the
// tests and docs/ops.md read the registry; nobody keeps a second list. `like` names the function whose values and
// gradients the golden files hold: a dotted path called with our names as keywords, or a Python expression over them.
// The kernels of an op are in KernelTables: see kernel.h.
#pragma once
#include <array>
#include <span>
#include <tuple>

#include "scaffolding/core/kernel.h"
#include "scaffolding/core/value.h"

namespace sf {

struct OpEntry {
  std::string name, params, help, reference;
  std::vector<ArgInfo> args;
  bool several = false;      // returns a tuple or list of tensors
  bool has_inplace = false;  // name_ exists in Python: writes the result over the first argument
  bool differentiable = true;
  bool is_random = false;                                // values depend on a generator: tests do not compare them
  Value (*call)(std::span<const Value> args) = nullptr;  // as many as args.size()
  std::vector<const KernelTableBase*> tables;            // for listings

  OpEntry& doc(std::string s) { return help = std::move(s), *this; }
  OpEntry& like(std::string s) { return reference = std::move(s), *this; }
  OpEntry& inplace() { return has_inplace = true, *this; }
  OpEntry& no_gradient() { return differentiable = false, *this; }
  OpEntry& random() { return is_random = true, *this; }
  template <class... T> OpEntry& kernels(const T&... t) { return (list(t), ...), *this; }

 private:
  template <class T> void list(const T& t) {
    tables.push_back(&t);
    if constexpr (requires { t.views; }) tables.push_back(&t.views);  // pointwise ops: see ops/pointwise/kernel.h
  }
};

const std::vector<OpEntry*>& all_ops();                         // sorted by name
OpEntry* find_op(std::string_view name);                        // null when unknown
Value call_op(std::string_view name, std::vector<Value> args);  // missing trailing arguments take their defaults

namespace detail {

template <size_t N> struct Params {
  std::string_view text;
  template <size_t M> consteval Params(const char (&s)[M]) : text(s, M - 1) {
    size_t n = M > 1;
    int depth = 0;
    for (char c : text) {
      depth += (c == '[' || c == '(') - (c == ']' || c == ')');
      if (c == ',' && depth == 0) ++n;
    }
    if (n != N) throw "SF_OP: the number of parameter names differs from the function's arity";
  }
};

struct ArgType {
  ArgKind kind;
  bool optional;
};
OpEntry& add_op(const char* name, std::string_view params, std::span<const ArgType> types,
                Value (*call)(std::span<const Value>), bool several);

template <class F> struct Signature;
template <class R, class... A> struct Signature<R (*)(A...)> {
  static constexpr size_t arity = sizeof...(A);
  static std::array<ArgType, sizeof...(A)> types() {
    return {ArgType{arg_type<std::remove_cvref_t<A>>::kind, is_optional<std::remove_cvref_t<A>>}...};
  }
  template <auto F, size_t... I> static Value call(std::span<const Value> v, std::index_sequence<I...>) {
    if constexpr (std::is_void_v<R>) {
      F(unbox<std::remove_cvref_t<A>>(v[I])...);
      return std::monostate{};
    } else if constexpr (is_tuple<std::remove_cvref_t<R>>) {
      return to_tensors(F(unbox<std::remove_cvref_t<A>>(v[I])...));
    } else {
      return Value(F(unbox<std::remove_cvref_t<A>>(v[I])...));
    }
  }
  static constexpr bool several = is_tuple<std::remove_cvref_t<R>> || std::is_same_v<std::remove_cvref_t<R>, Tensors>;
};

template <auto F> OpEntry& register_op(const char* name, Params<Signature<decltype(F)>::arity> p) {
  using S = Signature<decltype(F)>;
  static const auto types = S::types();
  return add_op(
      name, p.text, types,
      [](std::span<const Value> v) { return S::template call<F>(v, std::make_index_sequence<S::arity>{}); },
      S::several);
}

}  // namespace detail

#define SF_OP(fn, params) \
  static const ::sf::OpEntry& SF_CAT(sf_op_, __COUNTER__) = ::sf::detail::register_op<&fn>(#fn, params)
// When the C++ name cannot be the op's name (and, or, not).
#define SF_OP_NAMED(name, fn, params) \
  static const ::sf::OpEntry& SF_CAT(sf_op_, __COUNTER__) = ::sf::detail::register_op<&fn>(name, params)

}  // namespace sf
