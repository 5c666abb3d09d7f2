#include "scaffolding/diffusion/quantization/quantization_report.h"

#include <cmath>
#include <map>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/components.h"
#include "scaffolding/models/model.h"
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf::diffusion {

namespace {

constexpr int64_t kMostRows = 256;  // of a linear layer's input that its output is compared on

double norm_of(const Tensor& t) {
  const Tensor wide = to_dtype(t, kFloat64);
  return std::sqrt(sum(wide * wide).item());
}
double relative_error(const Tensor& got, const Tensor& want) {
  const double whole = norm_of(want);
  return whole > 0 ? norm_of(to_dtype(got, kFloat64) - to_dtype(want, kFloat64)) / whole : 0;
}

int64_t bytes_of(nn::Module& model) {
  int64_t bytes = 0;
  for (auto& p : nn::named_parameters(model)) bytes += int64_t(p.tensor.nbytes());
  for (auto& b : nn::named_buffers(model))
    if (b.persistent) bytes += int64_t(b.tensor.nbytes());
  return bytes;
}

models::Model& model_of(const DiffusionPipeline& pipeline) {
  const Ref<Denoiser> denoiser = pipeline.the_denoiser();
  SF_CHECK_AS(NotSupported, denoiser && denoiser->model(), pipeline.name(),
              ": its denoiser is no model of this library, and cannot be quantised from here");
  return *denoiser->model();
}

// Calls both, and hands the full one's prediction on.
class Comparing final : public Denoiser {
 public:
  Comparing(Ref<Denoiser> full, Ref<Denoiser> other, std::vector<double>& errors)
      : full_(std::move(full)), other_(std::move(other)), errors_(errors) {}
  io::Object config() override { return full_->config(); }
  DType dtype() override { return full_->dtype(); }
  Device device() override { return full_->device(); }
  models::Model* model() override { return full_->model(); }
  Tensor predict(const DenoiserCall& call) override {
    Tensor want = full_->predict(call);
    errors_.push_back(relative_error(other_->predict(call), want));
    return want;
  }

 private:
  Ref<Denoiser> full_, other_;
  std::vector<double>& errors_;
};

// The inputs of layers in their first call, of one sample or some rows.
class Inputs {
 public:
  explicit Inputs(const std::vector<nn::PlannedLayer>& layers) {
    for (auto& l : layers)
      hooks_.emplace_back(l.layer, l.layer->register_forward_pre_hook(
                                       [this, name = l.name](nn::Module&, const nn::Values& args) -> nn::Values {
                                         keep(name, args);
                                         return {};
                                       }));
  }
  ~Inputs() { stop(); }
  void stop() {
    for (auto& [layer, hook] : hooks_) layer->remove_hook(hook);
    hooks_.clear();
  }
  const Tensor* of(const std::string& name) const {
    auto found = all_.find(name);
    return found == all_.end() ? nullptr : &found->second;
  }

 private:
  void keep(const std::string& name, const nn::Values& args) {
    const Tensor* x = args.empty() || all_.count(name) ? nullptr : std::get_if<Tensor>(&args[0]);
    if (!x || x->ndim() == 0 || x->numel() == 0) return;
    if (x->ndim() == 4) {
      all_.emplace(name, x->narrow(0, 0, 1).clone());
      return;
    }
    const Tensor rows = x->reshape({-1, x->shape().back()});
    all_.emplace(name, rows.narrow(0, 0, std::min(kMostRows, rows.size(0))).clone());
  }
  std::map<std::string, Tensor> all_;
  std::vector<std::pair<nn::Module*, uint64_t>> hooks_;
};

Tensor output_of(nn::Module& layer, const Tensor& input) { return std::get<Tensor>(layer.call({Value(input)})); }

Tensor pictures_of(DiffusionPipeline& pipeline, const AnyOptions& call) {
  auto run = pipeline.start(call);
  while (!run->done()) run->step();
  return to_dtype(run->finish().images, kFloat32);
}

void set_denoiser(DiffusionPipeline& pipeline, const Ref<Denoiser>& denoiser) {
  for (auto& slot : pipeline.components())
    if (auto* place = slot.as<Ref<Denoiser>>(); place && *place == pipeline.the_denoiser()) {
      *place = denoiser;
      return;
    }
}

}  // namespace

QuantizationReport report_quantization(DiffusionPipeline& full, DiffusionPipeline& other, const std::string& format,
                                       const nn::QuantizeOptions& options, const std::function<AnyOptions()>& call) {
  autograd::NoGrad off;
  models::Model &dense = model_of(full), &narrow = model_of(other);
  SF_CHECK(&dense != &narrow, "report_quantization: needs the pipeline loaded twice, got one denoiser for both");
  QuantizationReport report{.model = dense.type(), .dense_bytes = bytes_of(dense)};
  const auto plan = nn::plan_quantization(dense, format, options);
  const auto done = nn::quantize_(narrow, format, options);
  SF_CHECK(plan.size() == done.size(), "report_quantization: the two pipelines differ: ", plan.size(), " and ",
           done.size(), " layers to replace");
  report.bytes = bytes_of(narrow);

  Inputs inputs(plan);
  Tensor want;
  {
    const Ref<Denoiser> own = full.the_denoiser();
    set_denoiser(full, std::make_shared<Comparing>(own, other.the_denoiser(), report.prediction_errors));
    try {
      want = pictures_of(full, call());
    } catch (...) {
      set_denoiser(full, own);
      throw;
    }
    set_denoiser(full, own);
  }
  inputs.stop();
  const Tensor got = pictures_of(other, call()), difference = got - want;
  report.picture_error = mean(abs(difference)).item();
  const double square = mean(difference * difference).item();
  report.psnr = square > 0 ? -10 * std::log10(square) : INFINITY;

  std::map<std::string, nn::Module*> made;
  for (auto& m : nn::named_modules(narrow)) made.emplace(m.name, m.module);
  for (size_t i = 0; i < plan.size(); ++i) {
    const auto& p = plan[i];
    nn::Module& quantised = *made.at(p.name);
    const Tensor weight = nn::dense_weight_of(*p.layer, kFloat32);
    ReportedLayer row{p.name, p.layer->type(), p.wanted, p.format, done[i].numbers, 0, done[i].bytes};
    for (auto& t : nn::named_parameters(*p.layer))
      if (t.name == "weight") row.dense_bytes = int64_t(t.tensor.nbytes());
    row.weight_error = relative_error(nn::dense_weight_of(quantised, kFloat32), weight);
    if (const Tensor* x = inputs.of(p.name))
      row.output_error = relative_error(output_of(quantised, *x), output_of(*p.layer, *x));
    report.layers.push_back(std::move(row));
  }
  return report;
}

}  // namespace sf::diffusion
