// torch.nn.utils: scaffolding/nn/clip_grad.h as _core._clip_grad, with positional arguments only; the Python face is
// python/scaffolding/nn/utils/.
#include "python/bindings/core/bind_tensor.h"
#include "scaffolding/nn/clip_grad.h"

namespace sf::py {

void bind_clip_grad(nb::module_& core) {
  nb::module_ m = core.def_submodule("_clip_grad");
  auto released = nb::call_guard<nb::gil_scoped_release>();
  m.def("get_total_norm", &nn::get_total_norm, released);
  m.def("clip_grads_with_norm_", &nn::clip_grads_with_norm_, released);
  m.def("clip_grad_norm_", &nn::clip_grad_norm_, released);
  m.def("clip_grad_value_", &nn::clip_grad_value_, released);
  m.def("parameters_to_vector", &nn::parameters_to_vector, released);
  m.def("vector_to_parameters", &nn::vector_to_parameters, released);
}

}  // namespace sf::py
