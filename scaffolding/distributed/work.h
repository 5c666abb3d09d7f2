// Work: a call of a ProcessGroup that may still be under way. Thread-safe; owned by the caller and by the group.
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>

namespace sf::distributed {

class Work {
 public:
  // of a group's thread
  Work() = default;
  // of what is waited for here: `finish` is called once, by the first wait()
  explicit Work(std::function<void()> finish) : finish_(std::move(finish)) {}
  // Returns when the call is done; throws what it threw. RuntimeError when timeout_seconds > 0 pass before.
  void wait(double timeout_seconds = 0);
  bool is_completed() const;
  bool is_success() const;
  void complete(std::exception_ptr error);

 private:
  mutable std::mutex mutex_;
  std::condition_variable done_changed_;
  bool done_ = false;
  std::exception_ptr error_;
  std::function<void()> finish_;
};

}  // namespace sf::distributed
