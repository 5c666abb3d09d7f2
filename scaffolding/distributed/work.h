// Work: a call of a ProcessGroup that may still be under way. Thread-safe; owned by the caller and by the group.
#pragma once
#include <exception>
#include <functional>
#include <memory>

namespace sf::distributed {

class Work {
 public:
  // of a group's thread, or, with `finish`, of what is waited for here: it is called once, by the first wait()
  explicit Work(std::function<void()> finish = {});
  Work(const Work&) = delete;
  // Returns when the call is done; throws what it threw. RuntimeError when timeout_seconds > 0 pass before.
  void wait(double timeout_seconds = 0);
  bool is_completed() const;
  bool is_success() const;
  void complete(std::exception_ptr error);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sf::distributed
