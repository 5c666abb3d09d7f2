#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/io/formats/pickle.h"

// The pickle machine by itself, with storages that are always there. What is read can be written and read again.
SF_FUZZ_TARGET(pickle) {
  using namespace sf::io;
  UnpickleOptions options;
  options.placeholders = size % 2 == 0;
  options.persistent_load = [](const Object&) {
    Object storage = Object::container(Object::Storage, {Object("cpu")});
    storage.node()->text = "FloatStorage";
    return storage;
  };
  options.rebuild_tensor = [](const Object&, int64_t, const sf::Shape& size, const sf::Shape&, sf::DType t) {
    return sf::empty({size.size()}, t);
  };
  ByteReader in(Bytes::borrow(data, size, "fuzz"));
  Object object = unpickle(in, options);
  named_tensors(object);
  std::string again = pickle(object, [](const Object&) { return PickledStorage{"FloatStorage", "0", "cpu", 1}; });
  ByteReader second(Bytes::borrow(again.data(), again.size(), "written again"));
  unpickle(second, options);
}
