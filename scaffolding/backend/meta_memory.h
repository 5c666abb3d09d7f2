// MetaMemory: the bytes that tensors on Device::Meta would take. A model that runs there while a counter looks tells
// what it would need elsewhere, for the cost of its shapes.
#pragma once
#include <cstdint>

namespace sf {

class MetaMemory {
 public:
  int64_t live() const { return live_; }  // bytes of the meta tensors that were made and not dropped while it counted
  int64_t peak() const { return peak_; }  // the most
  void reset_peak() { peak_ = live_; }

  // Tensors that the calling thread makes and drops meanwhile are those of a counter. The innermost one counts alone.
  class Counting {
   public:
    explicit Counting(MetaMemory& counter);
    ~Counting();
    Counting(const Counting&) = delete;

   private:
    MetaMemory* before_;
  };

  static void count(int64_t bytes);  // of the backend: made, or dropped where negative

 private:
  int64_t live_ = 0, peak_ = 0;
};

}  // namespace sf
