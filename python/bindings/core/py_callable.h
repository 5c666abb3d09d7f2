// A Python object held by C++ code that may run, or die, without the GIL.
#pragma once
#include <functional>
#include <memory>

#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

class Held {
 public:
  Held() = default;
  explicit Held(nb::handle o)
      : object_(Py_NewRef(o.ptr()), [](PyObject* p) {
          if (!Py_IsInitialized()) return;  // the interpreter is gone and took the object with it
          PyGILState_STATE gil = PyGILState_Ensure();
          Py_DECREF(p);
          PyGILState_Release(gil);
        }) {}
  nb::handle get() const { return object_.get(); }  // needs the GIL
  bool is_only_owner() const { return object_.use_count() == 1; }
  explicit operator bool() const { return bool(object_); }

 private:
  std::shared_ptr<PyObject> object_;
};

// A Python function from a tuple of tensors to a list of tensors, for C++ to call.
inline std::function<Tensors(const Tensors&)> tensor_function(nb::handle function) {
  return [function = Held(function)](const Tensors& inputs) -> Tensors {
    nb::gil_scoped_acquire gil;
    return nb::cast<Tensors>(function.get()(steal(wrap_tuple(inputs))));
  };
}

}  // namespace sf::py
