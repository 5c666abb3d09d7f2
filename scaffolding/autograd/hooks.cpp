#include "scaffolding/autograd/hooks.h"

#include <atomic>

#include "scaffolding/autograd/tape.h"

namespace sf::autograd {

static uint64_t next_id() {
  static std::atomic<uint64_t> counter{1};
  return counter.fetch_add(1, std::memory_order_relaxed);
}

void HookHandle::remove() {
  if (remove_) std::exchange(remove_, nullptr)();
}

HookHandle register_hook(const Tensor& t, TensorHook hook) {
  check_defined("register_hook", "tensor", t);
  SF_CHECK_AS(RuntimeError, t.requires_grad(), "register_hook: the tensor does not require a gradient");
  Edge e = edge_of(t);
  auto& list = e.node ? e.node->hooks_or_new().on_outputs : meta_of(t).hooks;
  if (!list) list = std::make_shared<HookList>();
  uint64_t id = next_id();
  list->push_back({id, e.nr, std::move(hook)});
  return {id, [id, weak = std::weak_ptr(list)] {
            if (auto l = weak.lock()) std::erase_if(*l, [id](auto& entry) { return entry.id == id; });
          }};
}

HookHandle register_post_accumulate_grad_hook(const Tensor& leaf, std::function<void(const Tensor&)> hook) {
  check_defined("register_post_accumulate_grad_hook", "tensor", leaf);
  SF_CHECK_AS(RuntimeError, leaf.requires_grad() && leaf.is_leaf(),
              "register_post_accumulate_grad_hook: needs a leaf that requires a gradient");
  auto& list = meta_of(leaf).post_accumulate;
  if (!list) list = std::make_shared<std::vector<std::pair<uint64_t, std::function<void(const Tensor&)>>>>();
  uint64_t id = next_id();
  list->push_back({id, std::move(hook)});
  return {id, [id, weak = std::weak_ptr(list)] {
            if (auto l = weak.lock()) std::erase_if(*l, [id](auto& entry) { return entry.first == id; });
          }};
}

void retain_grads(const Tensors& tensors) {
  for (auto& t : tensors) {
    check_defined("retain_grads", "tensor", t);
    t.retain_grad();
  }
}

}  // namespace sf::autograd
