#include "scaffolding/core/stopping.h"

namespace sf {

static thread_local const StopWhen* innermost = nullptr;

StopWhen::StopWhen(std::function<bool()> is_over) : is_over_(std::move(is_over)), outer_(innermost) {
  innermost = this;
}
StopWhen::~StopWhen() { innermost = outer_; }

void stop_here(const char* who) {
  for (const StopWhen* s = innermost; s; s = s->outer_)
    if (s->is_over_()) fail<Stopped>(who, ": stopped");
}

}  // namespace sf
