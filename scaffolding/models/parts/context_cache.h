// ContextCache: what a network makes of its text alone, the keys and values of cross-attention above all, kept from one call to the next. A sampling
// run calls the denoiser dozens of times with one text. In force on a thread for as long as a Scope lives, and only where no gradient is recorded.
// Owned by whoever runs the network; one thread at a time.
#pragma once
#include <vector>

#include "scaffolding/nn/linear.h"

namespace sf::models {

class ContextCache {
 public:
  class Scope {
   public:
    explicit Scope(ContextCache& cache);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ContextCache* before_;
  };
  static ContextCache* current();  // the calling thread's; null where none is in force

  // projection(context). The result is shared: not to be written.
  Tensor get(const nn::Linear& projection, const Tensor& context);
  // After contexts were overwritten in place: computes all again, into the memory that the results had.
  void refresh();
  int64_t computed() const { return computed_; }  // calls of projections so far

 private:
  // The same memory, not written since.
  struct Seen {
    Tensor tensor;
    uint32_t version = 0;
    explicit Seen(const Tensor& t) : tensor(t), version(t ? t.version() : 0) {}
    bool is(const Tensor& t) const;
  };
  struct Entry {
    const nn::Linear* projection;
    Seen context, weight, bias;
    Tensor result;
  };
  static constexpr size_t kMostContexts = 2;  // of a projection: guidance in two calls has two texts

  std::vector<Entry> entries_;  // in the order of their making: one's context may be the result of another
  int64_t computed_ = 0;
};

// projection(context), from the cache where one is in force. Hooks, and whatever stands in for the projection, see every call.
Tensor project_context(const nn::Linear& projection, const Tensor& context);

}  // namespace sf::models
