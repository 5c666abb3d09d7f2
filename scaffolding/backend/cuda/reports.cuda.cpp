#include "scaffolding/backend/cuda/reports.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "scaffolding/backend/cuda/pinned_memory.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"

namespace sf::cuda {

struct Reports::Shared {
  int64_t value[kMost];
  int32_t raised[kMost], any;
};

Reports& Reports::instance() {
  static auto* const all = new Reports;  // never destroyed: graphs write there
  return *all;
}

bool checks_wait() {
  static const bool wait = env::flag("SF_CUDA_CHECK_INDICES");
  return wait;
}

Report Reports::of(const char* op, int64_t dim, int64_t high) {
  std::lock_guard lock(mutex_);
  if (!shared_) {
    void* memory = PinnedMemory::instance().allocate(sizeof(Shared));
    shared_ = static_cast<Shared*>(std::memset(memory, 0, sizeof(Shared)));
    any_ = &shared_->any;
  }
  auto at = std::find_if(kinds_.begin(), kinds_.end(),
                         [&](const Kind& k) { return k.high == high && k.dim == dim && std::strcmp(k.op, op) == 0; });
  if (at == kinds_.end()) at = kinds_.insert(at, {op, dim, high});
  const size_t i = std::min(size_t(at - kinds_.begin()), kMost - 1);
  if (kinds_.size() > kMost) kinds_.resize(kMost);
  return {&shared_->value[i], &shared_->raised[i], &shared_->any};
}

void Reports::raise_first() {
  std::lock_guard lock(mutex_);
  shared_->any = 0;  // before the search: a later report sets it again
  const Kind* first = nullptr;
  int64_t value = 0;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (!shared_->raised[i]) continue;
    if (!first) first = &kinds_[i], value = shared_->value[i];
    shared_->raised[i] = 0;
  }
  if (!first) return;
  constexpr char kAdvice[] =
      " (found on the GPU, which went on without it; SF_CUDA_CHECK_INDICES=1 says so at the call itself)";
  if (first == &kinds_[kMost - 1]) fail<IndexError>("index: ", value, " is out of range", kAdvice);
  if (first->dim < 0) fail<IndexError>(first->op, ": values that it refuses", kAdvice);
  fail<IndexError>(first->op, ": index ", value, " is out of range for dimension ", first->dim, " of size ",
                   first->high, kAdvice);
}

}  // namespace sf::cuda
