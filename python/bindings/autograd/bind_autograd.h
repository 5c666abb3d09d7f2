// Nodes of the tape in Python.
#pragma once
#include "python/bindings/core/bind_tensor.h"
#include "scaffolding/autograd/node.h"

namespace sf::py {

nb::object wrap_node(const Ref<autograd::Node>& node);
std::string grad_fn_name(const autograd::Node& node);  // "MulBackward0" for mul

}  // namespace sf::py
