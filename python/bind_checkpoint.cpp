// Checkpointing of Python functions.
#include "bind_arguments.h"
#include "py_callable.h"
#include "scaffolding/autograd/checkpoint.h"

namespace sf::py {

namespace {

autograd::CheckpointFunction python_function(nb::handle function) {
  return [function = Held(function)](const Tensors& inputs) -> Tensors {
    nb::gil_scoped_acquire gil;
    nb::object found = function.get()(steal(wrap_tuple(inputs)));
    return nb::cast<Tensors>(found);
  };
}

}  // namespace

void bind_checkpoint(nb::module_& m) {
  m.def("_checkpoint", [](nb::handle function, const Tensors& inputs, bool preserve_rng_state) {
    return autograd::checkpoint(python_function(function), inputs, {.preserve_rng_state = preserve_rng_state});
  });
  m.def(
      "_checkpoint_offload",
      [](nb::handle function, const Tensors& inputs, nb::handle device, nb::handle dtype, int64_t min_bytes) {
        autograd::OffloadOptions options;
        DType t;
        if (!to_device(device.ptr(), options.device)) wrong_argument("checkpoint_offload", "device", "a device", device.ptr());
        if (!dtype.is_none()) {
          if (!to_dtype(dtype.ptr(), t)) wrong_argument("checkpoint_offload", "dtype", "a dtype", dtype.ptr());
          options.dtype = t;
        }
        options.min_bytes = min_bytes;
        return autograd::checkpoint_offload(python_function(function), inputs, options);
      },
      nb::arg("function"), nb::arg("inputs"), nb::arg("device"), nb::arg("dtype").none(), nb::arg("min_bytes"));
}

}  // namespace sf::py
