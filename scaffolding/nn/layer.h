// SF_LAYER: a layer is a Module plus one line that gives its constructor's parameters in Python syntax.
//
//   SF_LAYER(Linear, "in_features, out_features, bias=True, device=None, dtype=None",
//            [](int64_t in, int64_t out, bool bias, std::optional<Device> device, std::optional<DType> dtype) {
//              return std::make_unique<Linear>(in, out, bias, TensorOptions{device, dtype});
//            })
//       .forward<&Linear::forward>("input")
//       .field<&Linear::in_features>("in_features");
//
// Types and arity come from the function. The Python class (constructor, forward, attributes, pickling) is made from
// the registry: there is no binding per layer.
#pragma once
#include <map>
#include <typeindex>

#include "scaffolding/core/params.h"
#include "scaffolding/nn/module.h"
#include "scaffolding/ops/conv/conv.h"

namespace sf::nn {

// Sizes as they were given: one number for every dimension, or a list.
struct Ints {
  Shape values{0};
  bool single = true;
  Ints() = default;
  Ints(int64_t n) : values{n} {}
  Ints(int n) : values{n} {}
  Ints(const Shape& s) : values(s), single(false) {}
  Ints(std::initializer_list<int64_t> s) : values(s), single(false) {}
  // One number per dimension; ValueError when there are others than one or `dims` of them, or one is below `least`.
  Shape spread(const char* layer, const char* name, int64_t dims, int64_t least) const;
};

// A real number that is shown as it was given: 1 or 1.0.
class Number {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> Number(T v) : given_(v) {}
  Number(const Scalar& s) : given_(s) {}
  operator double() const { return given_.to_double(); }
  const Scalar& given() const { return given_; }

 private:
  Scalar given_;
};

}  // namespace sf::nn

template <> struct sf::detail::arg_type<sf::nn::Number> { static constexpr ArgKind kind = ArgKind::Scalar; };
template <> inline sf::nn::Number sf::detail::unbox<sf::nn::Number>(const Value& v) { return unbox<Scalar>(v); }

template <> struct sf::detail::arg_type<sf::nn::Ints> { static constexpr ArgKind kind = ArgKind::Ints; };
template <> inline sf::nn::Ints sf::detail::unbox<sf::nn::Ints>(const Value& v) {
  if (auto* i = std::get_if<int64_t>(&v)) return *i;
  return unbox<Shape>(v);
}

namespace sf::nn {

// Where and as what a layer's tensors are made.
struct TensorOptions {
  std::optional<Device> device;
  std::optional<DType> dtype;
};

struct LayerField {
  std::string name;
  ArgInfo info;  // for conversion of what is assigned
  Value (*get)(const Module&);
  void (*set)(Module&, const Value&);
};

// A further call of a layer beside forward: a model's encode and decode.
struct LayerMethod {
  std::string name, params;
  std::vector<ArgInfo> args;
  Value (*call)(const Module&, std::span<const Value> args) = nullptr;
};

struct LayerEntry {
  std::string name, params, help;
  std::type_index type = typeid(void);
  std::vector<ArgInfo> args;
  std::unique_ptr<Module> (*make)(std::span<const Value> args) = nullptr;
  std::string forward_params;
  std::vector<ArgInfo> forward_args;
  Value (*call)(const Module&, std::span<const Value> args) = nullptr;  // forward; as many as forward_args
  Tensor (*unary)(const Module&, const Tensor&) = nullptr;              // forward, where one tensor is enough
  std::vector<LayerField> fields;
  std::vector<LayerMethod> methods;

  LayerEntry& doc(std::string s) { return help = std::move(s), *this; }
  template <auto F> LayerEntry& forward(std::string_view params);
  template <auto M> LayerEntry& field(const char* name);
  template <auto F> LayerEntry& method(const char* name, std::string_view params);
  LayerEntry& with(LayerEntry& (*add)(LayerEntry&)) { return add(*this); }  // the fields that several layers share
  LayerEntry& ignores_arguments() { return any_arguments = true, *this; }   // the constructor takes anything: Identity
  bool any_arguments = false;
  std::string home = "nn";  // the part of the library that shows it: models are layers too
};

const std::vector<LayerEntry*>& all_layers();         // sorted by name
const LayerEntry* find_layer(std::string_view name);  // null when unknown
const LayerEntry* find_layer(const Module& m);        // by the object's exact type
// missing trailing arguments take their defaults
Value call_layer(const LayerEntry& layer, const Module& m, const Values& args);
// By name with boxed arguments, as from a configuration file.
std::unique_ptr<Module> make_layer(std::string_view name, Values args);

namespace detail {

LayerEntry& add_layer(const char* name, std::type_index type, std::string_view params,
                      std::span<const sf::detail::ArgType> types,
                      std::unique_ptr<Module> (*make)(std::span<const Value>));
void add_forward(LayerEntry& e, std::string_view params, std::span<const sf::detail::ArgType> types);

template <class T> sf::detail::ArgType arg_type_of() {
  using U = std::remove_cvref_t<T>;
  return {sf::detail::arg_type<U>::kind, sf::detail::is_optional<U>};
}

// The function that makes an M: a captureless lambda or a plain function.
template <class M, class R, class... A> struct Maker { static inline R (*function)(A...) = nullptr; };

template <class M, class R, class... A>
LayerEntry& register_maker(const char* name, std::string_view params, R (*f)(A...)) {
  static const std::array<sf::detail::ArgType, sizeof...(A)> types{arg_type_of<A>()...};
  Maker<M, R, A...>::function = f;
  auto make = [](std::span<const Value> v) -> std::unique_ptr<Module> {
    return [&]<size_t... I>(std::index_sequence<I...>)->std::unique_ptr<Module> {
      return Maker<M, R, A...>::function(sf::detail::unbox<std::remove_cvref_t<A>>(v[I])...);
    }
    (std::index_sequence_for<A...>());
  };
  return add_layer(name, typeid(M), params, types, make);
}
template <class M, class F> LayerEntry& register_layer(const char* name, std::string_view params, F f) {
  return register_maker<M>(name, params, +f);
}

template <class F> struct Forward;
template <class M, class R, class... A> struct Forward<R (M::*)(A...) const> {
  using Class = M;
  static constexpr bool unary = std::is_same_v<R, Tensor> && sizeof...(A) > 0 &&
                                std::is_same_v<std::tuple_element_t<0, std::tuple<A..., void>>, const Tensor&>;
  static constexpr size_t arity = sizeof...(A);
  static std::array<sf::detail::ArgType, sizeof...(A)> types() { return {arg_type_of<A>()...}; }
  template <auto F> static Value call(const Module& m, std::span<const Value> v) {
    return [&]<size_t... I>(std::index_sequence<I...>)->Value {
      return Value((static_cast<const M&>(m).*F)(sf::detail::unbox<std::remove_cvref_t<A>>(v[I])...));
    }
    (std::index_sequence_for<A...>());
  }
};

template <class T> struct MemberOf;
template <class M, class T> struct MemberOf<T M::*> {
  using Class = M;
  using Type = T;
};
template <class T> Value boxed(const T& v) {
  if constexpr (std::is_same_v<T, ConvPadding>) return v.same ? Value(std::string("same")) : Value(v.amounts);
  else if constexpr (requires {
                       v.values;
                       v.single;
                     })
    return v.single ? Value(v.values[0]) : Value(v.values);
  else if constexpr (sf::detail::is_optional<T>) return v ? boxed(*v) : Value(std::monostate{});
  else if constexpr (std::is_same_v<T, Scalar>) return v.is_float() ? Value(v.to_double()) : Value(v.to_int());
  else if constexpr (std::is_same_v<T, Number>) return boxed(v.given());
  else return Value(v);
}

}  // namespace detail

template <auto F> LayerEntry& LayerEntry::forward(std::string_view params) {
  using S = detail::Forward<decltype(F)>;
  static const auto types = S::types();
  detail::add_forward(*this, params, types);
  call = &S::template call<F>;
  if constexpr (S::unary && S::arity == 1) {
    unary = [](const Module& m, const Tensor& x) { return (static_cast<const typename S::Class&>(m).*F)(x); };
  }
  return *this;
}

template <auto M> LayerEntry& LayerEntry::field(const char* field_name) {
  using S = detail::MemberOf<decltype(M)>;
  using T = typename S::Type;
  using C = typename S::Class;
  auto type = detail::arg_type_of<T>();
  fields.push_back({field_name, ArgInfo{field_name, type.kind, type.optional, false, {}},
                    [](const Module& m) { return detail::boxed(static_cast<const C&>(m).*M); },
                    [](Module& m, const Value& v) { static_cast<C&>(m).*M = sf::detail::unbox<T>(v); }});
  return *this;
}

template <auto F> LayerEntry& LayerEntry::method(const char* method_name, std::string_view method_params) {
  using S = detail::Forward<decltype(F)>;
  static const auto types = S::types();
  methods.push_back({method_name, std::string(method_params),
                     sf::detail::parse_params((name + "." + method_name).c_str(), method_params, types),
                     &S::template call<F>});
  return *this;
}

#define SF_LAYER(Type, params, ...)                                   \
  static const ::sf::nn::LayerEntry& SF_CAT(sf_layer_, __COUNTER__) = \
      ::sf::nn::detail::register_layer<Type>(#Type, params, __VA_ARGS__)

}  // namespace sf::nn
