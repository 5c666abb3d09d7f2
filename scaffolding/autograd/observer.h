// Observer: sees, on its own thread, what is recorded and written in place while a function is traced. None otherwise.
// record() asks for one only in anomaly mode, so that calls pay nothing: whoever sets one switches that on.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::autograd {

class Observer {
 public:
  virtual void recorded(const char* op, const Tensor& y) = 0;  // y is op's result
  virtual void written(const char* op) = 0;                    // a tensor is about to be written in place
  static Observer* current();

 protected:
  Observer() = default;
  ~Observer() = default;
};

// Makes an observer the thread's current one for as long as the scope lives.
class ObserverScope {
 public:
  explicit ObserverScope(Observer& o);
  ~ObserverScope();
  ObserverScope(const ObserverScope&) = delete;

 private:
  Observer* before_;
};

}  // namespace sf::autograd
