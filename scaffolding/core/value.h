// Value: one argument or result of an op called by name (from Python, the command line or a test).
#pragma once
#include <string>
#include <variant>

#include "scaffolding/core/generator.h"
#include "scaffolding/core/tensor.h"

namespace sf {

using Floats = std::vector<double>;
// A std::variant that is made, copied and destroyed in one source file: its own constructors try each alternative.
using ValueVariant = std::variant<std::monostate, Tensor, bool, int64_t, double, std::string, Shape, Floats, Tensors,
                                  DType, Device, Generator>;
class Value : public ValueVariant {
 public:
  Value();
  Value(std::monostate none);
  Value(Tensor tensor);
  Value(bool flag);
  Value(int number);
  Value(int64_t number);
  Value(double number);
  Value(const char* text);
  Value(const void*) = delete;  // no bool
  Value(std::string text);
  Value(Shape numbers);
  Value(Floats numbers);
  Value(Tensors tensors);
  Value(DType dtype);
  Value(Device device);
  Value(Generator generator);
  Value(const Value& other);
  Value(Value&& other) noexcept;
  ~Value();
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
};

Tensor wrapped(const Scalar& s);  // a number as a 0-d tensor that does not widen dtypes (ops/pointwise)

enum class ArgKind : uint8_t { Tensor, Tensors, Int, Float, Bool, Scalar, Ints, Floats, Str, DType, Device, Generator };
const char* name(ArgKind k);

struct ArgInfo {
  std::string name;
  ArgKind kind;
  bool optional = false;  // None is a value of its own
  bool has_default = false;
  Value fallback;
};

namespace detail {

template <class T> struct arg_type;
template <> struct arg_type<Tensor> { static constexpr ArgKind kind = ArgKind::Tensor; };
template <> struct arg_type<Tensors> { static constexpr ArgKind kind = ArgKind::Tensors; };
template <> struct arg_type<int64_t> { static constexpr ArgKind kind = ArgKind::Int; };
template <> struct arg_type<double> { static constexpr ArgKind kind = ArgKind::Float; };
template <> struct arg_type<bool> { static constexpr ArgKind kind = ArgKind::Bool; };
template <> struct arg_type<Scalar> { static constexpr ArgKind kind = ArgKind::Scalar; };
template <> struct arg_type<Shape> { static constexpr ArgKind kind = ArgKind::Ints; };
template <> struct arg_type<Floats> { static constexpr ArgKind kind = ArgKind::Floats; };
template <> struct arg_type<std::string> { static constexpr ArgKind kind = ArgKind::Str; };
template <> struct arg_type<DType> { static constexpr ArgKind kind = ArgKind::DType; };
template <> struct arg_type<Device> { static constexpr ArgKind kind = ArgKind::Device; };
template <> struct arg_type<Generator> { static constexpr ArgKind kind = ArgKind::Generator; };
template <class T> struct arg_type<std::optional<T>> { static constexpr ArgKind kind = arg_type<T>::kind; };
template <class T> inline constexpr bool is_optional = false;
template <class T> inline constexpr bool is_optional<std::optional<T>> = true;

[[noreturn]] void wrong_kind(ArgKind wanted, const Value& got);

template <class T> T unbox(const Value& v) {
  if constexpr (is_optional<T>) {
    if (std::holds_alternative<std::monostate>(v)) return std::nullopt;
    return unbox<typename T::value_type>(v);
  } else if constexpr (std::is_same_v<T, Tensor> || std::is_same_v<T, Generator>) {
    if (std::holds_alternative<std::monostate>(v)) return T();
    if (auto* t = std::get_if<T>(&v)) return *t;
    if constexpr (std::is_same_v<T, Tensor>) {
      Scalar s;
      if (auto* b = std::get_if<bool>(&v)) s = *b;
      else if (auto* i = std::get_if<int64_t>(&v)) s = *i;
      else if (auto* d = std::get_if<double>(&v)) s = *d;
      else wrong_kind(ArgKind::Tensor, v);
      return wrapped(s);
    }
    wrong_kind(arg_type<T>::kind, v);
  } else if constexpr (std::is_same_v<T, Scalar>) {
    if (auto* b = std::get_if<bool>(&v)) return *b;
    if (auto* i = std::get_if<int64_t>(&v)) return *i;
    if (auto* d = std::get_if<double>(&v)) return *d;
    if (auto* t = std::get_if<Tensor>(&v); t && *t)
      return is_floating(t->dtype()) ? Scalar(t->item()) : Scalar(t->item_int());
    wrong_kind(ArgKind::Scalar, v);
  } else if constexpr (std::is_same_v<T, double>) {
    if (auto* d = std::get_if<double>(&v)) return *d;
    if (auto* i = std::get_if<int64_t>(&v)) return double(*i);
    wrong_kind(ArgKind::Float, v);
  } else if constexpr (std::is_same_v<T, int64_t>) {
    if (auto* i = std::get_if<int64_t>(&v)) return *i;
    wrong_kind(ArgKind::Int, v);
  } else if constexpr (std::is_same_v<T, Shape>) {
    if (auto* s = std::get_if<Shape>(&v)) return *s;
    if (auto* i = std::get_if<int64_t>(&v)) return Shape{*i};
    if (std::holds_alternative<std::monostate>(v)) return {};
    wrong_kind(ArgKind::Ints, v);
  } else if constexpr (std::is_same_v<T, Floats>) {
    if (auto* f = std::get_if<Floats>(&v)) return *f;
    if (auto* s = std::get_if<Shape>(&v)) return {s->begin(), s->end()};
    if (auto* d = std::get_if<double>(&v)) return {*d};
    if (auto* i = std::get_if<int64_t>(&v)) return {double(*i)};
    wrong_kind(ArgKind::Floats, v);
  } else {
    if (auto* t = std::get_if<T>(&v)) return *t;
    wrong_kind(arg_type<T>::kind, v);
  }
}

template <class... T> Tensors to_tensors(std::tuple<T...>&& t) {
  return std::apply([](auto&&... x) { return Tensors{std::move(x)...}; }, std::move(t));
}
template <class R> inline constexpr bool is_tuple = false;
template <class... T> inline constexpr bool is_tuple<std::tuple<T...>> = true;

}  // namespace detail
}  // namespace sf
