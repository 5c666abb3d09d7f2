#include "scaffolding/autograd/function.h"

#include <algorithm>
#include <mutex>
#include <set>

namespace sf::autograd {

// Nodes keep their name as a pointer; names from Python live as long as the process.
static const char* interned(const std::string& name) {
  static std::mutex lock;
  static std::set<std::string> names;
  std::lock_guard guard(lock);
  return names.insert(name).first->c_str();
}

static bool contains(const Tensors& list, const Tensor& t) {
  return std::any_of(list.begin(), list.end(), [&](const Tensor& x) { return x.is_same(t); });
}

void FunctionContext::mark_non_differentiable(const Tensors& outputs) { constants_ = outputs; }

Tensors FunctionContext::saved_tensors() const {
  SF_CHECK_AS(RuntimeError, !released_, node_ ? node_->name() : "Function",
              ": backward a second time through the same graph, whose saved tensors are freed; pass retain_graph=True "
              "the first time");
  Tensors out;
  for (auto& k : kept_) {
    if (k.output < 0) {
      out.push_back(k.saved.get());
      continue;
    }
    SF_CHECK_AS(RuntimeError, k.alias.version() == k.version, node_ ? node_->name() : "Function", ": its output ",
                k.alias.shape(), ", needed for the gradient, was modified in place; clone it before");
    Tensor y = k.alias.detach();
    if (node_ && grad_enabled() && size_t(k.output) < node_->outputs.size()) {
      y.impl()->grad_fn = Ref<Node>(node_);
      y.impl()->output_nr = uint32_t(k.output);
    }
    out.push_back(y);
  }
  return out;
}

class FunctionNode final : public Node {
 public:
  FunctionNode(const char* name, std::shared_ptr<FunctionContext> ctx, FunctionBackward backward)
      : Node(name), ctx_(std::move(ctx)), backward_(std::move(backward)) {
    ctx_->node_ = this;
  }
  ~FunctionNode() override { ctx_->node_ = nullptr; }

  Tensors apply(Tensors& dys) override {
    check_not_released(backward_ != nullptr);
    if (ctx_->materialize_)
      for (size_t i = 0; i < dys.size(); ++i)
        if (!dys[i] && outputs[i].dtype != kBool) dys[i] = zeros(outputs[i].shape, outputs[i].dtype, outputs[i].device);
    Tensors dxs = backward_(*ctx_, dys);
    SF_CHECK_AS(RuntimeError, dxs.size() == edges.size(), name(),
                ": backward must return one gradient per argument of forward, ", edges.size(), ", got ", dxs.size());
    return dxs;
  }
  void release_saved() override {
    ctx_->kept_.clear();
    ctx_->released_ = true;
    backward_ = nullptr;
  }
  void keep(const Tensors& results) {
    for (auto& t : ctx_->to_save_) {
      FunctionContext::Kept k;
      for (size_t i = 0; t && i < results.size(); ++i)
        if (results[i].is_same(t)) k.output = int(i);
      if (k.output < 0) {
        k.saved = save(t);
      } else {
        k.alias = t.detach();
        k.version = t.version();
      }
      ctx_->kept_.push_back(std::move(k));
    }
    ctx_->to_save_.clear();
  }

 private:
  std::shared_ptr<FunctionContext> ctx_;
  FunctionBackward backward_;
};

FunctionCall::FunctionCall(Tensors arguments)
    : arguments_(std::move(arguments)), context_(std::make_shared<FunctionContext>()) {
  for (auto& t : arguments_) context_->needs_.push_back(grad_enabled() && t.requires_grad());
}

Tensors FunctionCall::record(const std::string& name, Tensors outputs, FunctionBackward backward) {
  bool taped = any_requires_grad(arguments_);
  for (auto& y : outputs) {
    check_defined(name.c_str(), "an output of forward", y);
    if (taped && (contains(arguments_, y) || y.requires_grad())) {
      Tensor alias = y.detach();  // an input handed through, or a tensor that is on the tape already
      std::replace_if(
          context_->to_save_.begin(), context_->to_save_.end(),
          [&](const Tensor& t) { return t.is_same(y) && !contains(arguments_, y); }, alias);
      std::replace_if(
          context_->constants_.begin(), context_->constants_.end(), [&](const Tensor& t) { return t.is_same(y); },
          alias);
      y = alias;
    }
  }
  if (!taped) return outputs;
  auto* node = new FunctionNode(interned(name), context_, std::move(backward));
  Ref<Node> hold(node);
  detail::connect(node, arguments_);
  node->keep(outputs);
  node->outputs.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& y = outputs[i];
    node->outputs[i] = {y.shape(), y.dtype(), y.device()};
    if (is_floating(y.dtype()) && !contains(context_->constants_, y)) detail::attach(hold, outputs[i], uint32_t(i));
    if (detail::mode.anomaly) detail::check_anomaly(node->name(), y, arguments_);
  }
  context_->constants_.clear();
  return outputs;
}

Tensors custom(const std::string& name, const Tensors& outputs, const Tensors& inputs,
               std::function<Tensors(const Tensors& grads)> backward) {
  return FunctionCall(inputs).record(
      name, outputs,
      [backward = std::move(backward)](FunctionContext&, const Tensors& grads) { return backward(grads); });
}

}  // namespace sf::autograd
