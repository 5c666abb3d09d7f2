// The parts of scaffolding/train/ that Python's Trainer is made of, as _core._train: options and their checks, checkpoint folders,
// logs, the NaN guard. The loop itself is python/scaffolding/train/trainer.py.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind_object.h"
#include "bind_tensor.h"
#include "scaffolding/train/train.h"
#include "scaffolding/train/training_files.h"

namespace sf::py {

namespace {

using namespace train;

Named named(const std::vector<std::string>& names, const Tensors& tensors) {
  SF_CHECK(names.size() == tensors.size(), "Trainer: ", names.size(), " names for ", tensors.size(), " parameters");
  Named out;
  for (size_t i = 0; i < names.size(); ++i) out.push_back({names[i], tensors[i]});
  return out;
}

nb::dict best_of(const RunState& s) {
  nb::dict out;
  for (auto& [name, e] : s.best) {
    nb::dict extremes;
    extremes["lowest"] = e.lowest;
    extremes["lowest_step"] = e.lowest_step;
    extremes["highest"] = e.highest;
    extremes["highest_step"] = e.highest_step;
    out[name.c_str()] = extremes;
  }
  return out;
}

}  // namespace

void bind_train(nb::module_& core) {
  nb::module_ m = core.def_submodule("_train");
  auto released = nb::call_guard<nb::gil_scoped_release>();
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
      .def_rw("tensorboard", &RunOptions::tensorboard)
      .def("check", &RunOptions::check, nb::arg("batches").none())
      .def("total_steps", &RunOptions::total_steps, nb::arg("batches").none());
  nb::class_<RunState>(m, "RunState")
      .def(nb::init<>())
      .def_rw("step", &RunState::step)
      .def_rw("epoch", &RunState::epoch)
      .def_rw("samples", &RunState::samples)
      .def_rw("ema_step", &RunState::ema_step)
      .def_prop_ro("best", &best_of);
  m.def("write_torch", [](nb::handle object, const std::string& path) {
    io::Object tree = from_python(object);
    nb::gil_scoped_release release;
    write_torch(tree, path);
  });
  m.def("write_safetensors", &write_safetensors, released);
  m.def("save_run_state", &save_run_state);
  m.def("load_run_state", &load_run_state);
  m.def("verify_checkpoint", &verify_checkpoint, released);
  nb::class_<CheckpointFolders>(m, "CheckpointFolders")
      .def(nb::init<const std::string&, std::optional<int64_t>>(), nb::arg("output_dir"), nb::arg("total_limit").none())
      .def("steps", &CheckpointFolders::steps)
      .def("clean", &CheckpointFolders::clean)
      .def("begin", &CheckpointFolders::begin)
      .def("commit", &CheckpointFolders::commit, released)
      .def("abandon", &CheckpointFolders::abandon)
      .def("failure", &CheckpointFolders::failure)
      .def("find", [](const CheckpointFolders& c, const std::string& resume) -> nb::object {
        std::optional<CheckpointFolders::Found> found;
        {
          nb::gil_scoped_release release;
          found = c.find(resume);
        }
        if (!found) return nb::none();
        return nb::make_tuple(found->path, found->damaged);
      });
  nb::class_<EventFile>(m, "EventFile")
      .def(nb::init<const std::string&, int64_t>(), nb::arg("folder"), nb::arg("after_step") = 0)
      .def("add_scalars", &EventFile::add_scalars)
      .def("add_image", &EventFile::add_image)
      .def("sync", &EventFile::sync)
      .def_prop_ro("path", &EventFile::path);
  nb::enum_<Progress>(m, "Progress").value("Quiet", Progress::Quiet).value("Lines", Progress::Lines).value("Terminal", Progress::Terminal);
  nb::class_<RunLog>(m, "RunLog")
      .def(nb::init<const RunOptions&, const RunState&, std::optional<int64_t>, Progress>(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg())
      .def("record",
           [](RunLog& log, RunState& state, double loss, double lr, double grad_norm, int64_t samples, const std::map<std::string, double>& evaluation) {
             return log.record({loss, lr, grad_norm, samples, evaluation}, state);
           })
      .def("finish", &RunLog::finish)
      .def("sync", &RunLog::sync)
      .def_prop_ro("tensorboard", &RunLog::tensorboard, nb::rv_policy::reference_internal);
  m.def("note_not_finite", [](const Tensor& values, Tensor flag) { note_not_finite(values, flag); });
  m.def("check_loss",
        [](double loss, int64_t step, const std::vector<std::string>& names, const Tensors& parameters) { check_loss(loss, step, named(names, parameters)); });
  m.def("check_gradients", [](double norm, int64_t step, const std::vector<std::string>& names, const Tensors& parameters) {
    check_gradients(norm, step, named(names, parameters));
  });
}

}  // namespace sf::py
