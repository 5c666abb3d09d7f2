#include "scaffolding/distributed/work.h"

#include <chrono>
#include <utility>

#include "scaffolding/core/error.h"

namespace sf::distributed {

void Work::wait(double timeout_seconds) {
  std::unique_lock lock(mutex_);
  if (finish_) {
    auto finish = std::exchange(finish_, nullptr);
    lock.unlock();
    std::exception_ptr error;
    try {
      finish();
    } catch (...) {
      error = std::current_exception();
    }
    complete(error);
    lock.lock();
  }
  auto done = [&] { return done_; };
  if (timeout_seconds > 0) {
    bool came = done_changed_.wait_for(lock, std::chrono::duration<double>(timeout_seconds), done);
    SF_CHECK_AS(RuntimeError, came, "Work.wait: not done within ", timeout_seconds, " s");
  } else {
    done_changed_.wait(lock, done);
  }
  if (error_) std::rethrow_exception(error_);
}

bool Work::is_completed() const {
  std::lock_guard lock(mutex_);
  return done_;
}

bool Work::is_success() const {
  std::lock_guard lock(mutex_);
  return done_ && !error_;
}

void Work::complete(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  done_ = true;
  error_ = error;
  done_changed_.notify_all();
}

}  // namespace sf::distributed
