#include "scaffolding/distributed/tree_reduction.h"

#include <algorithm>
#include <memory>

namespace sf::distributed {

namespace {

// Bytes of a part that travel at a time: these are added while the next ones come. Two processes lose more by waking
// threads than they gain by what lies in a cache; four on two cores are fastest within a tenth of the least segment.
constexpr size_t kSegmentOfTwo = 4 << 20, kLeastSegment = 683 << 10;

size_t segment_of(int size) {
  size_t others = size_t(std::max(1, size - 1));
  return std::max(kLeastSegment, kSegmentOfTwo / (others * others));
}

using Transfers = std::vector<std::unique_ptr<Transfer>>;

class TreeReduction {
 public:
  enum class Sums { Everywhere, AtRoot, Here };

  // Part p of the numbers is that of process p: [p * part, (p + 1) * part), the last ones shorter or empty.
  TreeReduction(const TreeCall& call, const char* in, char* out, size_t count, size_t part, Sums sums, int root)
      : call_(call),
        in_(in),
        out_(out),
        item_(size_of(call.dtype)),
        count_(count),
        part_(part),
        sums_(sums),
        root_(root),
        segment_(segment_of(call.size) / item_),
        segments_((part + segment_ - 1) / segment_),
        leaving_(segments_) {
    size_t bytes = std::min(segment_, part_) * item_, others = bytes * size_t(call.size - 1);
    scratch_[0] = call.memory.get(2 * others);
    scratch_[1] = scratch_[0] + others;
    if (sums_ == Sums::AtRoot && call.rank != root_) own_ = std::make_unique_for_overwrite<char[]>(bytes * segments_);
  }

  void run() {
    for (size_t k = 0; k < segments_; ++k) give(k);
    if (segments_ > 0) collect(0);
    for (size_t k = 0; k < segments_; ++k) {
      if (k + 1 < segments_) collect(k + 1);
      add(k);
      share(k);
      if (k > 0) settle(shared_[(k - 1) % 2]);
    }
    if (segments_ > 0) settle(shared_[(segments_ - 1) % 2]);
  }

 private:
  size_t first(int p, size_t k) const { return std::min(size_t(p) * part_ + k * segment_, count_); }
  size_t length(int p, size_t k) const {
    size_t end = std::min({size_t(p + 1) * part_, size_t(p) * part_ + (k + 1) * segment_, count_});
    return end > first(p, k) ? end - first(p, k) : 0;
  }
  char* scratch(int p, size_t k) {
    size_t slot = size_t(p < call_.rank ? p : p - 1);
    return scratch_[k % 2] + slot * std::min(segment_, part_) * item_;
  }
  char* sum(size_t k) {  // where this process adds up its segment
    if (sums_ == Sums::Here) return out_ + k * segment_ * item_;
    if (own_) return own_.get() + k * segment_ * item_;
    return out_ + first(call_.rank, k) * item_;
  }
  template <class F> void each_other(F f) {  // beginning with the next one, so that not all talk to the same
    for (int i = 1; i < call_.size; ++i) f((call_.rank + i) % call_.size);
  }
  void settle(Transfers& transfers) {
    for (auto& t : transfers) t->wait(call_.deadline);
    transfers.clear();
  }

  // All that the others are to add is offered at once: then whoever is ready for a piece is served by the engine's
  // thread, and this one is free to add.
  void give(size_t k) {
    each_other([&](int p) {
      if (size_t n = length(p, k))
        leaving_[k].push_back(call_.engine.send(in_ + first(p, k) * item_, n * item_, p, call_.tag));
    });
  }
  void collect(size_t k) {
    size_t mine = length(call_.rank, k);
    if (mine > 0)
      each_other(
          [&](int p) { arriving_[k % 2].push_back(call_.engine.receive(scratch(p, k), mine * item_, p, call_.tag)); });
  }
  void add(size_t k) {
    settle(arriving_[k % 2]);
    if (size_t mine = length(call_.rank, k)) {
      std::vector<const void*> all;
      for (int p = 0; p < call_.size; ++p) all.push_back(p == call_.rank ? in_ + first(p, k) * item_ : scratch(p, k));
      reduce(sum(k), all, mine, call_.dtype, call_.op, call_.size);
    }
    settle(leaving_[k]);
  }
  void share(size_t k) {
    auto sends = [&](int p) {
      if (size_t n = length(call_.rank, k))
        shared_[k % 2].push_back(call_.engine.send(sum(k), n * item_, p, call_.tag + 1));
    };
    auto receives = [&](int p) {
      if (size_t n = length(p, k))
        shared_[k % 2].push_back(call_.engine.receive(out_ + first(p, k) * item_, n * item_, p, call_.tag + 1));
    };
    if (sums_ == Sums::Everywhere) each_other(sends), each_other(receives);  // offered first, as in give()
    if (sums_ == Sums::AtRoot && call_.rank == root_) each_other(receives);
    if (sums_ == Sums::AtRoot && call_.rank != root_) sends(root_);
  }

  const TreeCall& call_;
  const char* in_;
  char* out_;
  size_t item_, count_, part_;
  Sums sums_;
  int root_;
  size_t segment_, segments_;
  char* scratch_[2];             // what comes of the others, of one segment and the next
  std::unique_ptr<char[]> own_;  // sums of this part on their way to the root
  std::vector<Transfers> leaving_;
  Transfers arriving_[2], shared_[2];
};

size_t part_of(size_t count, int size) { return (count + size_t(size) - 1) / size_t(size); }

}  // namespace

void tree_all_reduce(const TreeCall& call, void* data, size_t count) {
  auto* at = static_cast<char*>(data);
  TreeReduction(call, at, at, count, part_of(count, call.size), TreeReduction::Sums::Everywhere, 0).run();
}

void tree_reduce(const TreeCall& call, void* data, size_t count, int root) {
  auto* at = static_cast<char*>(data);
  TreeReduction(call, at, at, count, part_of(count, call.size), TreeReduction::Sums::AtRoot, root).run();
}

void tree_reduce_scatter(const TreeCall& call, const void* in, void* out, size_t count) {
  TreeReduction(call, static_cast<const char*>(in), static_cast<char*>(out), count * size_t(call.size), count,
                TreeReduction::Sums::Here, 0)
      .run();
}

}  // namespace sf::distributed
