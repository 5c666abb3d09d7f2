// Saved: the one door by which a tensor is kept alive for backward. Remembers the version, so that an in-place write
// between forward and backward is an error and never a wrong gradient; hooks may move the bytes elsewhere meanwhile.
#pragma once
#include <functional>
#include <memory>

#include "scaffolding/core/tensor.h"

namespace sf::autograd {

// pack runs when a tensor is saved and returns how to get it back (off the tape), or null to keep it as it is. Leaves
// that require a gradient are not packed. Thread-local stack, the innermost counts; see checkpoint.h for offloading.
using PackHook = std::function<std::function<Tensor()>(const Tensor&)>;
class SavedTensorHooks {
 public:
  explicit SavedTensorHooks(PackHook pack);
  ~SavedTensorHooks();
  SavedTensorHooks(const SavedTensorHooks&) = delete;
};

class Node;
namespace detail {
std::function<Tensor()> pack_saved(const Tensor& t);  // null when no hook is active
}

// Keeps an alias of the bytes and the tensor's place on the tape, not the tensor: t.mul_(t) would keep itself alive.
class Saved {
 public:
  Saved() = default;
  explicit Saved(const Tensor& t);
  explicit operator bool() const { return bool(tensor_) || unpack_ != nullptr; }
  Tensor get() const;  // RuntimeError when the bytes were written in place meanwhile

 private:
  Tensor tensor_;  // a leaf that requires a gradient is kept itself
  std::shared_ptr<std::function<Tensor()>> unpack_;
  Ref<Node> grad_fn_;  // of a tensor that is on the tape
  uint32_t output_nr_ = 0;
  uint32_t version_ = 0;
};

inline Saved save(const Tensor& t) { return Saved(t); }
std::vector<Saved> save(const Tensors& ts);

}  // namespace sf::autograd

// Saved owns a Node, which is only declared here: whoever has Saved ones includes node.h.
