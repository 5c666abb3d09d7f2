// ContextCache: what a network makes of its text alone, the keys and values of cross-attention above all, kept from one
// call to the next. A sampling run calls the denoiser dozens of times with one text. In force on a thread for as long
// as a Scope lives, and only where no gradient is recorded. Owned by whoever runs the network; one thread at a time.
// Networks reach it through project_text (projections.h).
#pragma once
#include <functional>
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

  using Compute = std::function<Tensor(const Tensor& context)>;
  // compute(context), which reads nothing else but these layers, or what stands in for them. The result is shared:
  // not to be written.
  Tensor get(const std::vector<const nn::Linear*>& layers, const Tensor& context, const Compute& compute);
  // From now on `whole` is parts, one after the other along its first dimension: what is made of each is kept for as
  // long as it is one of them, so that of a batch whose samples change only what is new is computed. compute() has to
  // work sample by sample.
  void joins(const Tensor& whole, const std::vector<Tensor>& parts);
  // After contexts were overwritten in place: computes all again, into the memory that the results had.
  void refresh();
  int64_t computed() const { return computed_; }  // calls of compute so far

 private:
  // The same memory, not written since.
  struct Seen {
    Tensor tensor;
    uint32_t version = 0;
    explicit Seen(const Tensor& t) : tensor(t), version(t ? t.version() : 0) {}
    bool is(const Tensor& t) const;
  };
  // Some samples of a context, or of a result: their number stays as long as they do.
  struct Part {
    uint64_t number;
    Seen samples;
    uint64_t made_of = 0;  // a result's: the number of its context's part
  };
  using Parts = std::vector<Part>;
  struct Entry {
    std::vector<const nn::Linear*> layers;
    Compute compute;
    Seen context;
    std::vector<Seen> weights;  // of the layers
    Tensor result;
    Parts parts = {};  // of the result, where the context has some
  };
  static constexpr size_t kMostContexts = 2;  // of the same layers: guidance in two calls has two texts

  static std::vector<Seen> weights_of(const std::vector<const nn::Linear*>& layers);
  static bool are_weights_of(const Entry& entry);
  const Parts* parts_of(const Tensor& context) const;  // null: it has none
  Tensor of_parts(const std::vector<const nn::Linear*>& layers, const Tensor& context, const Parts& parts,
                  const Compute& compute);

  Seen whole_{Tensor()};
  Parts parts_;  // of it
  uint64_t numbers_ = 0;
  std::vector<Entry> entries_;  // in the order of their making: one's context may be the result of another
  int64_t computed_ = 0;
};

}  // namespace sf::models
