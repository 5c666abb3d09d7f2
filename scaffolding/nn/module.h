// Module: a struct whose member names are its state-dict keys.
//
//   struct Block : nn::Module {
//     nn::Linear fc{8, 8};
//     std::optional<nn::Conv2d> shortcut;   // absent: no keys
//     nn::ModuleList<Block> blocks;         // keys "blocks.0.fc.weight", ...
//     Tensor scale = nn::parameter(ones({8}));
//     nn::Buffer count{zeros({1})};
//     SF_MODULE(Block, fc, shortcut, blocks, scale, count)
//     Tensor forward(const Tensor& x) const;
//   };
//
// SF_MODULE names the members once; everything that walks a model (state dicts, loading, to(), printing) is a Visitor
// of those names. Modules are values: they may be members, moved, and copied, where a copy shares the tensors.
// Members that Python adds to a module (attributes, hooks, subclasses) come in through Extension,
// so that C++ sees them too.
// Not locked: one module is used from one thread at a time, except for forward() in eval mode.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/core/tensor.h"
#include "scaffolding/core/value.h"

namespace sf::nn {

class Module;
struct Adapter;
using Values = std::vector<Value>;

// A leaf that requires a gradient, shown as nn.Parameter in Python.
Tensor parameter(const Tensor& data, bool requires_grad = true);

// A tensor that belongs to a module's state but is not trained.
// Those that are not persistent are not in the state dict.
struct Buffer : Tensor {
  bool persistent = true;
  Buffer() = default;
  Buffer(Tensor t, bool is_persistent = true) : Tensor(std::move(t)), persistent(is_persistent) {}
};

// Sees the members of one module, in order of declaration, absent ones included; does not descend.
struct Visitor {
  virtual ~Visitor() = default;
  virtual void parameter(std::string_view /*name*/, const Tensor& /*t*/) {}
  virtual void buffer(std::string_view /*name*/, const Tensor& /*t*/, bool /*persistent*/) {}
  virtual void module(std::string_view /*name*/, Module* /*m*/) {}  // null: absent
};

// What a language binding adds to a module. It outlives its use by the module: see Module::extend.
class Extension {
 public:
  virtual ~Extension() = default;
  virtual void visit(Visitor& v) = 0;  // members beyond those of SF_MODULE
  virtual bool calls() const = 0;      // whether calls of the module must go through call(): hooks, another forward
  virtual Value call(const Values& args) = 0;
  virtual bool train(bool mode) = 0;  // false: Module::train does it
  virtual std::string type() = 0;
  virtual std::string extra_repr() = 0;
  virtual std::string repr() = 0;
};

// A hook may return other arguments (an empty list keeps them), or another output (None keeps it).
using ForwardPreHook = std::function<Values(Module& module, const Values& args)>;
using ForwardHook = std::function<Value(Module& module, const Values& args, const Value& output)>;

class Module {
 public:
  Module();
  Module(const Module& o);  // hooks and what Python added stay with o
  Module(Module&& o) noexcept;
  Module& operator=(const Module& o) { return training = o.training, *this; }
  virtual ~Module();

  virtual const char* type() const = 0;  // the class's name
  virtual void visit(Visitor&) {}        // the members of SF_MODULE
  void visit_all(Visitor& v);  // and those that Python added; members that were replaced as what stands in for them
  virtual std::string extra_repr() const { return {}; }
  virtual bool is_list() const { return false; }  // printed with equal neighbours as one line
  virtual void train(bool mode = true);           // itself and all below
  void eval() { train(false); }
  // forward with boxed arguments, hooks included. NotSupported for types that are not registered as layers.
  Value call(const Values& args);
  Value call_native(const Values& args);  // past what Python put in the way

  // Hooks run in the order of registration, before and after each forward. The number takes them off again.
  uint64_t register_forward_pre_hook(ForwardPreHook hook);
  uint64_t register_forward_hook(ForwardHook hook);
  void remove_hook(uint64_t id);
  bool has_hooks() const;  // registered here, not in Python

  // The binding's part: null takes it off. Not owned.
  void extend(Extension* e);
  Extension* extension() const;
  void calls_changed();  // after extension()->calls() or the hooks changed

  // Puts m in the place of this member of a C++ class: walks of the class see m, and its calls of this module reach m
  // (an adapter around this one, say). What the class reads from this module's members directly, it reads as before. m
  // is asked for each time; null takes it off again.
  void replace_by(std::function<Module*()> m);
  Module* present() const;  // what stands in for this one, or this one

  // Every call of this layer gives what the adapter makes of its output; hooks see that, and fused kernels do not go
  // past it unawares. For a member that something else stands in for: adapt what is present(). Null takes it off; a
  // copy of the module has none.
  void adapt(std::shared_ptr<const Adapter> adapter);
  std::shared_ptr<const Adapter> adapter() const;

  void leaves(OutOfMemory& e) const;  // a call of this module that it comes out of: adds its name

  bool training = true;
  void* python = nullptr;  // the Python object that shows this module now, not owned

 protected:
  virtual Value forward_boxed(const Values& args);
  // of types that are not registered as layers: forward with tensors only
  virtual Value forward_tensors(const Values& args);
  struct UpToThreeTensors {
    explicit UpToThreeTensors(const Values& args);
    const Tensor* all[3] = {};
    size_t size = 0;  // 0 where these are more values, or others than tensors
  };
  template <class M> Value call_tensors(const M& m, const Values& args) {
    const UpToThreeTensors t(args);
    if constexpr (requires { Value(m.forward(*t.all[0])); })
      if (t.size == 1) return Value(m.forward(*t.all[0]));
    if constexpr (requires { Value(m.forward(*t.all[0], *t.all[1])); })
      if (t.size == 2) return Value(m.forward(*t.all[0], *t.all[1]));
    if constexpr (requires { Value(m.forward(*t.all[0], *t.all[1], *t.all[2])); })
      if (t.size == 3) return Value(m.forward(*t.all[0], *t.all[1], *t.all[2]));
    return Module::forward_tensors(args);
  }
  // `forward` with hooks around it: called by operator() only when there are any.
  Value call_slowly(const Values& args, const std::function<Value(const Values&)>& forward) const;
  bool slow_ = false;

  static std::string_view next_name(std::string_view& names);
  static void visit_one(Visitor& v, std::string_view name, const Buffer& t) { v.buffer(name, t, t.persistent); }
  static void visit_one(Visitor& v, std::string_view name, const Tensor& t) { v.parameter(name, t); }
  static void visit_one(Visitor& v, std::string_view name, Module& m) { v.module(name, &m); }
  template <class T> static void visit_one(Visitor& v, std::string_view name, std::optional<T>& m) {
    v.module(name, m ? &*m : nullptr);
  }
  template <class T> static void visit_one(Visitor& v, std::string_view name, std::shared_ptr<T>& m) {
    v.module(name, m.get());
  }
  template <class T> static void visit_one(Visitor& v, std::string_view name, std::unique_ptr<T>& m) {
    v.module(name, m.get());
  }
  template <class... M>
  static void visit_members([[maybe_unused]] Visitor& v, [[maybe_unused]] std::string_view names, M&... members) {
    (visit_one(v, next_name(names), members), ...);
  }
  template <class R> static R unboxed(const Value& v) {
    if constexpr (std::is_same_v<R, Value>) return v;
    else return sf::detail::unbox<R>(v);
  }
  template <class M, class... A> static auto call_module(const M& m, A&&... a) {
    using R = std::remove_cvref_t<decltype(m.forward(std::forward<A>(a)...))>;
    if (!m.slow_) [[likely]] {
      try {
        return R(m.forward(std::forward<A>(a)...));
      } catch (OutOfMemory& e) {
        m.leaves(e);
        throw;
      }
    }
    if constexpr ((std::is_constructible_v<Value, A> && ...) &&
                  (std::is_same_v<R, Value> || std::is_constructible_v<Value, R>)) {
      auto forward = [&m](const Values& v) -> Value {
        return [&]<size_t... I>(std::index_sequence<I...>)->Value {
          return m.forward(unboxed<std::remove_cvref_t<A>>(v.at(I))...);
        }
        (std::index_sequence_for<A...>());
      };
      return unboxed<R>(m.call_slowly(Values{Value(std::forward<A>(a))...}, forward));
    } else {
      fail<NotSupported>(m.type(), ": hooks cannot see arguments of these types");
      return m.forward(std::forward<A>(a)...);
    }
  }

 private:
  struct Side;  // hooks, the extension, the adapter: most modules have none
  Value run_hooks(const Values& args, const std::function<Value(const Values&)>& forward) const;
  std::unique_ptr<Side> side_;
};

// Names the members once; makes the object callable.
#define SF_MODULE(Name, ...)                                                                               \
  ::sf::Value forward_tensors(const ::sf::nn::Values& args) override { return call_tensors(*this, args); } \
  const char* type() const override { return #Name; }                                                      \
  void visit(::sf::nn::Visitor& v) override { visit_members(v, #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); } \
  template <class... A> auto operator()(A&&... a) const { return call_module(*this, std::forward<A>(a)...); }

// Children by number. T may be any module; with T = Module the elements are of any type.
template <class T> class ModuleList : public Module {
 public:
  ModuleList() = default;
  ModuleList(ModuleList&&) noexcept = default;
  ModuleList& operator=(ModuleList&&) noexcept = default;
  template <class U = T, class... A> U& emplace_back(A&&... a) {
    auto item = std::make_shared<U>(std::forward<A>(a)...);
    items_.push_back(item);
    return *item;
  }
  void push_back(std::shared_ptr<T> m) { items_.push_back(std::move(m)); }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  T& operator[](size_t i) const { return *items_.at(i); }

  class iterator {
   public:
    explicit iterator(const std::shared_ptr<T>* p) : p_(p) {}
    T& operator*() const { return **p_; }
    iterator& operator++() { return ++p_, *this; }
    bool operator!=(const iterator& o) const { return p_ != o.p_; }

   private:
    const std::shared_ptr<T>* p_;
  };
  iterator begin() const { return iterator(items_.data()); }
  iterator end() const { return iterator(items_.data() + items_.size()); }

  const char* type() const override { return "ModuleList"; }
  bool is_list() const override { return true; }
  void visit(Visitor& v) override {
    for (size_t i = 0; i < items_.size(); ++i) v.module(std::to_string(i), items_[i].get());
  }

 private:
  std::vector<std::shared_ptr<T>> items_;
};

// Children of different types by number, as in diffusers' to_out = [Linear, Dropout]: get<0>() is the Linear,
// its keys begin with "to_out.0".
template <class... T> class ModuleTuple : public Module {
 public:
  explicit ModuleTuple(T... items) : items_(std::move(items)...) {}
  template <size_t I> auto& get() { return std::get<I>(items_); }
  template <size_t I> const auto& get() const { return std::get<I>(items_); }
  const char* type() const override { return "ModuleList"; }
  bool is_list() const override { return true; }
  void visit(Visitor& v) override {
    std::apply([&, i = 0](auto&... items) mutable { (v.module(std::to_string(i++), &items), ...); }, items_);
  }

 private:
  std::tuple<T...> items_;
};

// Modules called one after another.
class Sequential : public Module {
 public:
  Sequential() = default;
  template <class... M>
  requires(std::is_base_of_v<Module, std::decay_t<M>>&&...) explicit Sequential(M&&... modules) {
    (emplace_back<std::decay_t<M>>(std::forward<M>(modules)), ...);
  }
  template <class U, class... A> U& emplace_back(A&&... a) {
    auto item = std::make_shared<U>(std::forward<A>(a)...);
    items_.push_back(item);
    return *item;
  }
  void push_back(std::shared_ptr<Module> m) { items_.push_back(std::move(m)); }
  size_t size() const { return items_.size(); }
  Module& operator[](size_t i) const { return *items_.at(i); }
  Tensor forward(const Tensor& input) const;
  Tensor operator()(const Tensor& input) const;
  const char* type() const override { return "Sequential"; }
  void visit(Visitor& v) override;

 protected:
  Value forward_boxed(const Values& args) override;

 private:
  std::vector<std::shared_ptr<Module>> items_;
};

// One step down a walk of modules: RuntimeError when there are so many below each other that one must contain itself.
class Descent {
 public:
  explicit Descent(const Module& m);
  ~Descent() { --depth_; }
  Descent(const Descent&) = delete;

 private:
  static thread_local int depth_;
};

// ---- walking. Names are dotted paths. What is shared is listed once, under its first name,
// unless remove_duplicate is false.
struct NamedTensor {
  std::string name;
  Tensor tensor;
  bool persistent = true;
  Module* owner = nullptr;
};
struct NamedModule {
  std::string name;
  Module* module;
  Module* parent;  // null for the root
};
std::vector<NamedModule> named_children(Module& m);  // absent ones left out
std::vector<NamedModule> named_modules(Module& m, const std::string& prefix = "", bool remove_duplicate = true);
std::vector<NamedTensor> named_parameters(Module& m, const std::string& prefix = "", bool recurse = true,
                                          bool remove_duplicate = true);
std::vector<NamedTensor> named_buffers(Module& m, const std::string& prefix = "", bool recurse = true,
                                       bool remove_duplicate = true);
Tensors parameters(Module& m);
Tensors parameters_and_buffers(Module& m);
Module& get_submodule(Module& m, std::string_view path);  // ValueError naming the closest paths

// ---- changing all tensors
// Converts parameter by parameter, so that at most one is in memory twice. dtype applies to floating tensors only.
// Tensors keep their identity: shared ones stay shared and an optimizer keeps its parameters. Gradients move along.
struct ToOptions {
  std::optional<Device> device;
  std::optional<DType> dtype;
  MemoryFormat memory_format = MemoryFormat::Preserve;  // ChannelsLast: of 4-D and 5-D tensors
};
void to(Module& m, const ToOptions& options);
void zero_grad(Module& m, bool set_to_none = true);
void requires_grad_(Module& m, bool on = true);

// ---- printing, as torch prints modules
std::string repr(Module& m);
std::string repr(Module& m, bool is_list);

}  // namespace sf::nn
