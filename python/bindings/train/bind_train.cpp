// What Python's Trainer and SummaryWriter need of scaffolding/train/, as _core._train: the settings of a run, the files
// of a checkpoint and of TensorBoard. The loop is bind_trainer.cpp's.
#include "python/bindings/train/bind_train.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "python/bindings/io/bind_object.h"
#include "scaffolding/train/event_file.h"
#include "scaffolding/train/run_options.h"
#include "scaffolding/train/training_files.h"

namespace sf::py {

using namespace train;

void bind_train(nb::module_& core) {
  nb::module_ m = core.def_submodule("_train");
  nb::class_<RunOptions>(m, "RunOptions")
      .def(nb::init<>())
      .def_rw("output_dir", &RunOptions::output_dir)
      .def_rw("max_steps", &RunOptions::max_steps, nb::arg().none())
      .def_rw("max_epochs", &RunOptions::max_epochs, nb::arg().none())
      .def_rw("gradient_accumulation_steps", &RunOptions::gradient_accumulation_steps)
      .def_rw("max_grad_norm", &RunOptions::max_grad_norm, nb::arg().none())
      .def_rw("mixed_precision", &RunOptions::mixed_precision)
      .def_rw("checkpointing_steps", &RunOptions::checkpointing_steps, nb::arg().none())
      .def_rw("checkpoints_total_limit", &RunOptions::checkpoints_total_limit, nb::arg().none())
      .def_rw("logging_steps", &RunOptions::logging_steps)
      .def_rw("eval_steps", &RunOptions::eval_steps, nb::arg().none())
      .def_rw("tensorboard", &RunOptions::tensorboard);
  m.def("write_torch", [](nb::handle object, const std::string& path) {
    io::Object tree = from_python(object);
    nb::gil_scoped_release release;
    write_torch(tree, path);
  });
  m.def("write_safetensors", &write_safetensors, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<EventFile>(m, "EventFile")
      .def(nb::init<const std::string&, int64_t>(), nb::arg("folder"), nb::arg("after_step") = 0)
      .def("add_scalars", &EventFile::add_scalars)
      .def("add_image", &EventFile::add_image)
      .def("sync", &EventFile::sync)
      .def_prop_ro("path", &EventFile::path);
  bind_trainer(m);
}

}  // namespace sf::py
