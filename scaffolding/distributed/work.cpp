#include "scaffolding/distributed/work.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "scaffolding/core/error.h"

namespace sf::distributed {

struct Work::State {
  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;
  std::exception_ptr error;
  std::function<void()> finish;
};

Work::Work(std::function<void()> finish) : state_(std::make_shared<State>()) { state_->finish = std::move(finish); }

void Work::wait(double timeout_seconds) {
  std::unique_lock lock(state_->mutex);
  if (state_->finish) {
    auto finish = std::exchange(state_->finish, nullptr);
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
  auto done = [&] { return state_->done; };
  if (timeout_seconds > 0) {
    bool came = state_->done_changed.wait_for(lock, std::chrono::duration<double>(timeout_seconds), done);
    SF_CHECK_AS(RuntimeError, came, "Work.wait: not done within ", timeout_seconds, " s");
  } else {
    state_->done_changed.wait(lock, done);
  }
  if (state_->error) std::rethrow_exception(state_->error);
}

bool Work::is_completed() const {
  std::lock_guard lock(state_->mutex);
  return state_->done;
}

bool Work::is_success() const {
  std::lock_guard lock(state_->mutex);
  return state_->done && !state_->error;
}

void Work::complete(std::exception_ptr error) {
  std::lock_guard lock(state_->mutex);
  state_->done = true;
  state_->error = error;
  state_->done_changed.notify_all();
}

}  // namespace sf::distributed
