#include "scaffolding/autograd/observer.h"

namespace sf::autograd {

static thread_local Observer* observer = nullptr;

Observer* Observer::current() { return observer; }
ObserverScope::ObserverScope(Observer& o) : before_(observer) { observer = &o; }
ObserverScope::~ObserverScope() { observer = before_; }

}  // namespace sf::autograd
