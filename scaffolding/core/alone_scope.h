// AloneScope: the calling thread computes without the pool of parallel_for and leaves it to others. For threads that
// are many already, as a loader's workers are: else each of them would start a team of its own, which spins after every
// small op.
#pragma once

namespace sf {

class AloneScope {
 public:
  AloneScope();
  ~AloneScope();
  AloneScope(const AloneScope&) = delete;
  AloneScope& operator=(const AloneScope&) = delete;

 private:
  int restore_;
};

}  // namespace sf
