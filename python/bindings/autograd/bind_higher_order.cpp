// C++ that calls a Python function with tensors, once or many times: checkpointing and gradcheck.
#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/py_callable.h"
#include "scaffolding/autograd/checkpoint.h"
#include "scaffolding/autograd/gradcheck.h"

namespace sf::py {

void bind_higher_order(nb::module_& m) {
  m.def("_checkpoint", [](nb::handle function, const Tensors& inputs, bool preserve_rng_state) {
    return autograd::checkpoint(tensor_function(function), inputs, {.preserve_rng_state = preserve_rng_state});
  });
  m.def(
      "_checkpoint_offload",
      [](nb::handle function, const Tensors& inputs, nb::handle device, nb::handle dtype, int64_t min_bytes) {
        autograd::OffloadOptions options;
        DType t;
        if (!to_device(device.ptr(), options.device))
          wrong_argument("checkpoint_offload", "device", "a device", device.ptr());
        if (!dtype.is_none()) {
          if (!to_dtype(dtype.ptr(), t)) wrong_argument("checkpoint_offload", "dtype", "a dtype", dtype.ptr());
          options.dtype = t;
        }
        options.min_bytes = min_bytes;
        return autograd::checkpoint_offload(tensor_function(function), inputs, options);
      },
      nb::arg("function"), nb::arg("inputs"), nb::arg("device"), nb::arg("dtype").none(), nb::arg("min_bytes"));
  m.def("_gradcheck", [](nb::handle function, const Tensors& inputs, double eps, double atol, double rtol,
                         bool raise_exception, bool check_undefined_grad) {
    auto call = tensor_function(function);
    nb::gil_scoped_release release;
    return autograd::gradcheck(call, inputs, {eps, atol, rtol, raise_exception, check_undefined_grad});
  });
  m.def("_gradgradcheck", [](nb::handle function, const Tensors& inputs, const Tensors& grad_outputs, double eps,
                             double atol, double rtol, bool raise_exception) {
    auto call = tensor_function(function);
    nb::gil_scoped_release release;
    return autograd::gradgradcheck(call, inputs, grad_outputs, {eps, atol, rtol, raise_exception});
  });
}

}  // namespace sf::py
