// Calls at the end of a backward pass, for those who have to finish what hooks began.
#pragma once
#include <functional>

namespace sf::autograd {

// Calls f once, when the outermost backward() that this thread is in has done everything else; not where that throws.
// RuntimeError outside of a backward pass.
void queue_callback(std::function<void()> f);

}  // namespace sf::autograd
