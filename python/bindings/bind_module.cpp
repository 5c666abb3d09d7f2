// The extension module scaffolding._core. The package's Python files re-export it and add what reads better in Python.
#include "python/bindings/backend/bind_cuda.h"
#include "python/bindings/core/bind_generator.h"
#include "python/bindings/core/bind_profiler.h"
#include "python/bindings/core/bind_signatures.h"
#include "python/bindings/core/bind_tensor.h"
#include "python/bindings/diffusion/bind_schedulers.h"
#include "python/bindings/diffusion/bind_training.h"
#include "python/bindings/diffusion/bind_trajectories.h"
#include "python/bindings/distributed/bind_distributed.h"
#include "python/bindings/io/bind_hub.h"
#include "python/bindings/nn/bind_quantize.h"
#include "python/bindings/nn/bind_streaming.h"
#include "python/bindings/ops/bind_fuse.h"
#include "python/bindings/tokenizers/bind_tokenizers.h"

NB_MODULE(_core, m) {
  nb::set_leak_warnings(false);        // tensors held by module globals outlive the interpreter's own tear-down
  m.attr("__name__") = "scaffolding";  // what is made here shows the package's name; restored below
  sf::py::bind_tensor(m);
  sf::py::bind_dtype(m);
  sf::py::bind_generator(m);
  sf::py::bind_methods(m);
  sf::py::bind_data(m);
  sf::py::bind_data_loading(m);
  sf::py::bind_memory(m);
  sf::py::bind_cuda(m);
  sf::py::bind_cuda_kernel(m);
  sf::py::bind_numpy(m);
  sf::py::bind_dlpack(m);
  sf::py::bind_factory(m);
  sf::py::bind_autograd(m);
  sf::py::bind_hooks(m);
  sf::py::bind_function(m);
  sf::py::bind_fuse(m);
  sf::py::bind_gradient_map(m);
  sf::py::bind_higher_order(m);
  sf::py::bind_nn(m);
  sf::py::bind_init(m);
  sf::py::bind_clip_grad(m);
  sf::py::bind_quantize(m);
  sf::py::bind_streaming(m);
  sf::py::bind_optim(m);
  sf::py::bind_schedule(m);
  sf::py::bind_amp(m);
  sf::py::bind_io(m);
  sf::py::bind_hub(m);
  sf::py::bind_single_file(m);
  sf::py::bind_schedulers(m);
  sf::py::bind_training(m);
  sf::py::bind_trajectories(m);
  sf::py::bind_models(m);
  sf::py::bind_tokenizers(m);
  sf::py::bind_pipelines(m);
  sf::py::bind_train(m);
  sf::py::bind_profiler(m);
  sf::py::bind_distributed(m);
  sf::py::bind_signatures(m);
  sf::py::bind_ops(m);  // last: what is written by hand wins
  m.attr("__name__") = "scaffolding._core";
}
