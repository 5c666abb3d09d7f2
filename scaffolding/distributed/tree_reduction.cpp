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

// Pieces as if they lay one after the other.
class Numbers {
 public:
  Numbers(std::span<const Piece> pieces, size_t item) : item_(item) {
    for (const Piece& p : pieces) {
      if (p.count == 0) continue;
      runs_.push_back({count_, p.count, p.data});
      count_ += p.count;
    }
  }
  size_t count() const { return count_; }
  // f(address, how many, how many of the n came before) for the runs of memory that hold [first, first + n).
  template <class F> void each_run(size_t first, size_t n, F f) const {
    auto after = [](size_t at, const Run& r) { return at < r.first; };
    auto run = std::upper_bound(runs_.begin(), runs_.end(), first, after);
    for (size_t done = 0; done < n; ++run) {
      const Run& r = run[-1];
      size_t at = first + done - r.first, some = std::min(r.count - at, n - done);
      f(r.data + at * item_, some, done);
      done += some;
    }
  }

 private:
  struct Run {
    size_t first, count;
    char* data;
  };
  std::vector<Run> runs_;
  size_t item_, count_ = 0;
};

enum class Sums { Everywhere, AtRoot, Here };

class TreeReduction {
 public:
  // Part p of the numbers is that of process p: [p * part, (p + 1) * part), the last ones shorter or empty. Sums take
  // the place of what came, but for those of Here, of `part` numbers, and of processes that are not the root.
  TreeReduction(const TreeCall& call, const Numbers& all, size_t part, Sums sums, int root = 0, void* here = nullptr)
      : call_(call),
        all_(all),
        item_(size_of(call.dtype)),
        part_(part),
        sums_(sums),
        root_(root),
        segment_(segment_of(call.size) / item_),
        segments_((part + segment_ - 1) / segment_),
        totals_(all),
        leaving_(segments_) {
    size_t others = std::min(segment_, part_) * item_ * size_t(call.size - 1);
    scratch_[0] = call.memory.get(2 * others);
    scratch_[1] = scratch_[0] + others;
    if (sums_ == Sums::AtRoot && call.rank != root_) {
      kept_ = std::make_unique_for_overwrite<char[]>(part_ * item_);
      here = kept_.get();
    }
    if (here) {
      const Piece own{static_cast<char*>(here), part_};
      totals_ = Numbers({&own, 1}, item_);
      totals_begin_ = size_t(call.rank) * part_;
    }
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
  size_t first(int p, size_t k) const { return std::min(size_t(p) * part_ + k * segment_, all_.count()); }
  size_t length(int p, size_t k) const {
    size_t end = std::min({size_t(p + 1) * part_, size_t(p) * part_ + (k + 1) * segment_, all_.count()});
    return end > first(p, k) ? end - first(p, k) : 0;
  }
  char* scratch(int p, size_t k) {
    size_t slot = size_t(p < call_.rank ? p : p - 1);
    return scratch_[k % 2] + slot * std::min(segment_, part_) * item_;
  }
  // As Numbers::each_run, for where this process adds up n numbers of its segment, from one of them on.
  template <class F> void each_total(size_t k, size_t from, size_t n, F f) {
    totals_.each_run(first(call_.rank, k) + from - totals_begin_, n, f);
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
      all_.each_run(first(p, k), length(p, k), [&](const char* at, size_t n, size_t) {
        leaving_[k].push_back(call_.engine.send(at, n * item_, p, call_.tag));
      });
    });
  }
  void collect(size_t k) {
    each_other([&](int p) {
      char* into = scratch(p, k);
      // In the pieces in which it is sent.
      all_.each_run(first(call_.rank, k), length(call_.rank, k), [&](const char*, size_t n, size_t before) {
        arriving_[k % 2].push_back(call_.engine.receive(into + before * item_, n * item_, p, call_.tag));
      });
    });
  }
  void add(size_t k) {
    settle(arriving_[k % 2]);
    all_.each_run(first(call_.rank, k), length(call_.rank, k), [&](const char* at, size_t n, size_t before) {
      each_total(k, before, n, [&](char* total, size_t some, size_t more) {
        std::vector<const void*> all;
        for (int p = 0; p < call_.size; ++p)
          all.push_back(p == call_.rank ? at + more * item_ : scratch(p, k) + (before + more) * item_);
        reduce(total, all, some, call_.dtype, call_.op, call_.size);
      });
    });
    settle(leaving_[k]);
  }
  void share(size_t k) {
    auto sends = [&](int p) {
      each_total(k, 0, length(call_.rank, k), [&](const char* at, size_t n, size_t) {
        shared_[k % 2].push_back(call_.engine.send(at, n * item_, p, call_.tag + 1));
      });
    };
    auto receives = [&](int p) {
      all_.each_run(first(p, k), length(p, k), [&](char* at, size_t n, size_t) {
        shared_[k % 2].push_back(call_.engine.receive(at, n * item_, p, call_.tag + 1));
      });
    };
    if (sums_ == Sums::Everywhere) each_other(sends), each_other(receives);  // offered first, as in give()
    if (sums_ == Sums::AtRoot && call_.rank == root_) each_other(receives);
    if (sums_ == Sums::AtRoot && call_.rank != root_) sends(root_);
  }

  const TreeCall& call_;
  Numbers all_;
  size_t item_, part_;
  Sums sums_;
  int root_;
  size_t segment_, segments_;
  Numbers totals_;
  size_t totals_begin_ = 0;       // which number the first of totals_ is
  std::unique_ptr<char[]> kept_;  // totals on their way to the root
  char* scratch_[2];              // what comes of the others, of one segment and the next
  std::vector<Transfers> leaving_;
  Transfers arriving_[2], shared_[2];
};

size_t part_of(size_t count, int size) { return (count + size_t(size) - 1) / size_t(size); }

}  // namespace

void tree_all_reduce(const TreeCall& call, std::span<const Piece> pieces) {
  Numbers all(pieces, size_of(call.dtype));
  TreeReduction(call, all, part_of(all.count(), call.size), Sums::Everywhere).run();
}

void tree_reduce(const TreeCall& call, void* data, size_t count, int root) {
  const Piece one{static_cast<char*>(data), count};
  Numbers all({&one, 1}, size_of(call.dtype));
  TreeReduction(call, all, part_of(count, call.size), Sums::AtRoot, root).run();
}

void tree_reduce_scatter(const TreeCall& call, const void* in, void* out, size_t count) {
  auto* from = static_cast<char*>(const_cast<void*>(in));  // nothing is written there
  const Piece one{from, count * size_t(call.size)};
  Numbers all({&one, 1}, size_of(call.dtype));
  TreeReduction(call, all, count, Sums::Here, 0, out).run();
}

}  // namespace sf::distributed
