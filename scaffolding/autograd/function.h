// User-defined ops with a forward and a backward of their own.
//
//   struct Scale : autograd::Function<Scale> {
//     static Tensor forward(FunctionContext& ctx, const Tensor& x, double k) {
//       ctx.save_for_backward({x});
//       ctx.saved_data["k"] = k;
//       return x * k;
//     }
//     static Tensors backward(FunctionContext& ctx, const Tensors& grads) {
//       return {grads[0] * std::get<double>(ctx.saved_data["k"]), {}};     // one per argument of forward
//     }
//   };
//   Tensor y = Scale::apply(x, 2.0);
//
// forward runs unrecorded and returns a Tensor or Tensors. backward gets one gradient per output and returns one per
// argument: empty tensors for those that are no tensors or need no gradient; a Tensors argument counts as its elements.
// backward written with ops is differentiable itself. The context belongs to the recorded op.
#pragma once
#include <map>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/value.h"

namespace sf::autograd {

class FunctionContext {
 public:
  // ---- in forward
  // inputs, outputs or others; the last call counts
  void save_for_backward(const Tensors& tensors) { to_save_ = tensors; }
  void mark_non_differentiable(const Tensors& outputs);  // integer outputs are so anyway
  // absent gradients of outputs become zeros (on by default)
  void set_materialize_grads(bool on) { materialize_ = on; }
  bool needs_input_grad(size_t argument) const { return argument < needs_.size() && needs_[argument]; }
  std::map<std::string, Value> saved_data;  // anything that is not a tensor
  // ---- in backward
  Tensors saved_tensors() const;  // RuntimeError when written in place meanwhile, or freed by an earlier backward

 private:
  friend class FunctionNode;
  friend struct FunctionCall;
  struct Kept {
    Saved saved;
    int output = -1;  // a saved output: its alias, which must not own the node that owns it
    Tensor alias;
    uint32_t version = 0;
  };
  Tensors to_save_, constants_;
  std::vector<Kept> kept_;
  std::vector<bool> needs_;
  Node* node_ = nullptr;
  bool materialize_ = true, released_ = false;
};

// The same for callers that are not templates (Python): starts a call, runs forward themselves under NoGrad with the
// context, and records the outputs. Returns what the user gets; outputs that are inputs become aliases of them.
using FunctionBackward = std::function<Tensors(FunctionContext&, const Tensors& grads)>;
struct FunctionCall {
  explicit FunctionCall(Tensors arguments);  // an empty tensor for every argument that is none
  Tensors record(const std::string& name, Tensors outputs, FunctionBackward backward);
  FunctionContext& context() { return *context_; }

 private:
  Tensors arguments_;
  std::shared_ptr<FunctionContext> context_;
};

// The shortest way: outputs computed by the caller under NoGrad, and a closure over what it needs.
Tensors custom(const std::string& name, const Tensors& outputs, const Tensors& inputs,
               std::function<Tensors(const Tensors& grads)> backward);

template <class F> struct Function {
  template <class... A> static auto apply(A&&... arguments) {
    Tensors tensors;
    (collect(tensors, arguments), ...);
    FunctionCall call(std::move(tensors));
    using R = decltype(F::forward(call.context(), arguments...));
    auto backward = [](FunctionContext& ctx, const Tensors& grads) { return F::backward(ctx, grads); };
    Tensors outputs;
    {
      NoGrad off;
      if constexpr (std::is_same_v<R, Tensor>) outputs = {F::forward(call.context(), arguments...)};
      else outputs = F::forward(call.context(), arguments...);
    }
    outputs = call.record(name(), std::move(outputs), backward);
    if constexpr (std::is_same_v<R, Tensor>) return outputs[0];
    else return outputs;
  }

 private:
  static std::string name() {  // F::kName where there is one
    if constexpr (requires { F::kName; }) return F::kName;
    else return "Function";
  }
  template <class T> static void collect(Tensors& all, const T& argument) {
    if constexpr (std::is_convertible_v<const T&, Tensor>) all.push_back(argument);
    else if constexpr (std::is_same_v<T, Tensors>) all.insert(all.end(), argument.begin(), argument.end());
    else all.emplace_back();
  }
};

}  // namespace sf::autograd
