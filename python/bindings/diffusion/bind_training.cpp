// What scaffolding/diffusion/training.py and scaffolding/data/cached_rows.py call.
#include "python/bindings/diffusion/bind_training.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/bind_generator.h"
#include "python/bindings/io/bind_object.h"
#include "scaffolding/data/cached_rows.h"
#include "scaffolding/diffusion/pipelines/cogvideox/positions.h"
#include "scaffolding/diffusion/training.h"

namespace sf::py {

using namespace diffusion;

static void bind_cached_rows(nb::module_ m) {
  using namespace data;
  nb::class_<RowWriter>(m, "RowWriter", "Writes rows of tensors into a folder, file by file.")
      .def(nb::init<const std::string&, int64_t, std::string>(), nb::arg("folder"), nb::arg("rows_per_file") = 256,
           nb::arg("about") = "")
      .def("add", &RowWriter::add, nb::arg("rows"),
           "rows are tensors [N, ...] by name, with the names, dtypes and further sizes of the first call.")
      .def("finish", &RowWriter::finish, "After the last row: without it the folder holds no cache.")
      .def("__len__", &RowWriter::size);
  nb::class_<CachedRows>(m, "CachedRows")
      .def(nb::init<const std::string&, const std::optional<std::string>&>(), nb::arg("folder"),
           nb::arg("about").none() = nb::none())
      .def("about", &CachedRows::about)
      .def("names", &CachedRows::names)
      .def("get", &CachedRows::get, nb::arg("index"))
      .def("__len__", &CachedRows::size);
}

void bind_training(nb::module_& core) {
  bind_cached_rows(nb::borrow<nb::module_>(core.attr("_data")));
  nb::module_ m = nb::borrow<nb::module_>(core.attr("_diffusion"));
  nb::class_<TrainingBatch>(m, "TrainingBatch", "What the model sees at one training step, and what it should answer.")
      .def_ro("noisy_latents", &TrainingBatch::noisy_latents, "The model's input [B, C, ...].")
      .def_ro("timesteps", &TrainingBatch::timesteps, "[B]")
      .def_ro("target", &TrainingBatch::target, "The answer that is asked for [B, C, ...].")
      .def_ro("weights", &TrainingBatch::weights, "Of the samples' losses [B], float32; None: all 1.")
      .def_ro("dropped", &TrainingBatch::dropped, "Which samples learn without their condition [B], bool; None: none.")
      .def(
          "loss", [](const TrainingBatch& b, const Tensor& prediction) { return training_loss(prediction, b); },
          nb::arg("prediction"), "The weighted mean squared difference of prediction and target: a float32 number.")
      .def(
          "drop",
          [](const TrainingBatch& b, const Tensor& condition, const Tensor& null) {
            return drop_condition(condition, b.dropped, null);
          },
          nb::arg("condition"), nb::arg("null_condition") = nb::none(),
          "condition[B, ...] with null_condition (of one sample; None: zeros) for the samples that were chosen.");
  m.def(
      "training_batch",
      [](Scheduler& scheduler, const Tensor& latents, nb::dict options, const Tensor& noise, const Tensor& timesteps,
         nb::handle generator) {
        TrainingOptions o;
        ConfigRest rest = read_fields("training_batch", o.fields(), from_python(options));
        if (!rest.unknown.items().empty())
          fail<TypeError>("training_batch: unexpected keyword argument '", rest.unknown.items()[0].text(), "'");
        TrainingDraws draws{noise, timesteps, {}};
        if (!generator.is_none() && !to_generator(generator.ptr(), draws.generator))
          wrong_argument("training_batch", "generator", "a Generator", generator.ptr());
        return training_batch(scheduler, latents, o, draws);
      },
      nb::arg("scheduler"), nb::arg("latents"), nb::arg("options"), nb::arg("noise").none(),
      nb::arg("timesteps").none(), nb::arg("generator").none());
  m.def(
      "cogvideox_positions",
      [](int64_t frames, int64_t height, int64_t width, int64_t patch_size, int64_t patch_size_t, int64_t sample_height,
         int64_t sample_width, int64_t attention_head_dim) {
        return cogvideox_positions({patch_size, patch_size_t, sample_height, sample_width, attention_head_dim}, frames,
                                   height, width);
      },
      nb::arg("frames"), nb::arg("height"), nb::arg("width"), nb::arg("patch_size"), nb::arg("patch_size_t"),
      nb::arg("sample_height"), nb::arg("sample_width"), nb::arg("attention_head_dim"));
  m.def("compute_snr", &compute_snr, nb::arg("noise_scheduler"), nb::arg("timesteps"));
}

}  // namespace sf::py
