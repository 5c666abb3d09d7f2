// Checkpoint trees (io::Object) as Python objects and back. Needs the GIL.
#pragma once
#include <functional>

#include "python/bindings/core/bind_tensor.h"
#include "scaffolding/io/object.h"

namespace sf::py {

// Lists, dicts and tensors that are one object in the tree are one object in Python. place: the device that tensors
// saved from `location` go to; tensors that shared a storage share one there. Unknown classes become
// scaffolding.io.Placeholder.
nb::object to_python(const io::Object& tree, const std::function<Device(const std::string& location)>& place = {});

// TypeError naming the place in the object ("obj['optimizer'][0]") for what cannot be saved.
io::Object from_python(nb::handle object);

}  // namespace sf::py
