// sf.fuse: a Python function of tensors as one pass. What users see is in python/scaffolding/_fuse.py.
#include "python/bindings/ops/bind_fuse.h"

#include <nanobind/stl/string.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/py_callable.h"
#include "scaffolding/ops/fuse/fuse.h"

namespace sf::py {

namespace {

Tensor call(nb::handle function, const Tensors& arguments) {
  nb::object y = function(steal(wrap_tuple(arguments)));
  if (!is_tensor(y.ptr())) fail<TypeError>("fuse: the fused function must return one tensor, got ", type_name(y.ptr()));
  return tensor_of(y.ptr());
}

}  // namespace

void bind_fuse(nb::module_& m) {
  nb::class_<Fused>(m, "_Fused")
      .def("__init__",
           [](Fused* self, nb::handle function) {
             new (self) Fused([function = Held(function)](const Tensors& arguments) {
               nb::gil_scoped_acquire gil;
               return call(function.get(), arguments);
             });
           })
      .def("__call__",
           [](const Fused& f, const Tensors& arguments) {
             nb::gil_scoped_release release;
             return f(arguments);
           })
      .def("traces", &Fused::traces)
      .def("cuda_source", &Fused::cuda_source);
}

}  // namespace sf::py
