// StopOnInterrupt: while it lives, the first SIGINT (Ctrl-C) is noted instead of ending the process; a second one does
// what it did before. One at a time in a process; made and destroyed in the same thread.
#pragma once
#include <csignal>

namespace sf::train {

class StopOnInterrupt {
 public:
  explicit StopOnInterrupt(bool enabled = true);
  ~StopOnInterrupt();
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;
  bool asked() const;

 private:
  bool enabled_;
};

}  // namespace sf::train
