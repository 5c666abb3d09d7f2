#include "scaffolding/backend/meta_memory.h"

#include <utility>

namespace sf {

static constinit thread_local MetaMemory* t_counter = nullptr;

MetaMemory::Counting::Counting(MetaMemory& counter) : before_(std::exchange(t_counter, &counter)) {}
MetaMemory::Counting::~Counting() { t_counter = before_; }

Device MetaMemory::kernels_of(Device device) { return device.is_meta() && t_counter ? t_counter->stands_for_ : device; }

void MetaMemory::count(int64_t bytes) {
  if (!t_counter) return;
  t_counter->live_ += bytes;
  if (t_counter->live_ > t_counter->peak_) t_counter->peak_ = t_counter->live_;
}

}  // namespace sf
