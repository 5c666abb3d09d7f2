#include "scaffolding/diffusion/pipelines/shared_steps.h"

#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/denoiser_graphs.h"
#include "scaffolding/diffusion/pipelines/pipeline.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

bool same_rows(const Tensor& a, const Tensor& b) {
  if (!a || !b) return !a && !b;
  return a.ndim() == b.ndim() && a.dtype() == b.dtype() && a.device() == b.device() &&
         std::equal(a.shape().begin() + 1, a.shape().end(), b.shape().begin() + 1);
}

bool same_tensor(const Tensor& a, const Tensor& b) {
  if (!a || !b) return !a && !b;
  return a.data_ptr() == b.data_ptr() && a.shape() == b.shape() && a.strides() == b.strides() && a.dtype() == b.dtype();
}

// parts[n, ...] with zeros around them.
Tensors with_blanks(const std::vector<Tensor>& parts, int64_t place, int64_t rows) {
  const Tensor& like = parts[0];
  auto blank = [&](int64_t n) {
    Shape shape = like.shape();
    shape[0] = n;
    return zeros(shape, like.dtype(), like.device());
  };
  Tensors all;
  int64_t own = 0;
  for (auto& p : parts) own += p.size(0);
  if (place > 0) all.push_back(blank(place));
  all.insert(all.end(), parts.begin(), parts.end());
  if (rows > place + own) all.push_back(blank(rows - place - own));
  return all;
}

}  // namespace

bool SharedSteps::fit(const Run& a, const Run& b) {
  auto can = [](const Run& r) {
    return r.shares_calls && r.samples_ == 0 && (!r.guidance.on() || r.guidance.mode == GuidanceMode::Batched);
  };
  if (!can(a) || !can(b) || a.denoiser != b.denoiser) return false;
  if (!same_rows(a.latents, b.latents)) return false;
  return std::equal(a.told.begin(), a.told.end(), b.told.begin(), b.told.end(),
                    [](const DenoiserArgument& x, const DenoiserArgument& y) {
                      if (x.name != y.name || x.role != y.role) return false;
                      if (x.role == ArgumentRole::Sample || x.role == ArgumentRole::Timestep) return true;
                      return is_shared(x.role) ? same_tensor(x.tensor, y.tensor) : same_rows(x.tensor, y.tensor);
                    });
}

std::vector<std::exception_ptr> SharedSteps::step(const std::vector<Run*>& runs) {
  SF_CHECK(!runs.empty(), "shared steps: there is no run");
  if (runs.size() == 1) {  // which may be one that fits no other: its guidance takes two calls
    runs[0]->step();
    return {nullptr};
  }
  for (Run* run : runs)
    SF_CHECK(fit(*runs[0], *run), "shared steps: the runs must be of one denoiser and alike in what it is told");
  int64_t rows = 0;
  for (Run* run : runs) rows += run->rows();
  return call(runs, 0, rows);
}

void SharedSteps::step_beside(Run& run, int64_t place, int64_t rows) {
  SF_CHECK(fit(run, run), "shared steps: this run's guidance takes two calls");
  SF_CHECK(place >= 0 && rows >= run.rows() && place <= rows - run.rows(), "shared steps: ", run.rows(),
           " rows do not lie in a call of ", rows, " from ", place, " on");
  if (rows == run.rows()) return run.step();
  if (auto error = call({&run}, place, rows)[0]) std::rethrow_exception(error);
}

Tensor SharedSteps::joined(size_t argument, bool is_text, const std::vector<Tensor>& parts, int64_t place,
                           int64_t rows) {
  if (kept_.size() <= argument) kept_.resize(argument + 1);
  Joined& k = kept_[argument];
  bool same = k.tensor && k.place == place && k.rows == rows && k.parts.size() == parts.size();
  for (size_t i = 0; same && i < parts.size(); ++i)
    same = same_tensor(k.parts[i], parts[i]) && k.versions[i] == parts[i].version();
  if (same) return k.tensor;
  const Tensors all = with_blanks(parts, place, rows);
  k = {parts, {}, place, rows, cat(all, 0)};
  if (is_text) denoiser_->text_joins(k.tensor, all);
  for (auto& p : parts) k.versions.push_back(p.version());
  return k.tensor;
}

std::vector<std::exception_ptr> SharedSteps::call(const std::vector<Run*>& runs, int64_t place, int64_t rows) {
  autograd::NoGrad no_grad;
  Run& first = *runs[0];
  if (!of_ || denoiser_of_ != first.denoiser) {
    denoiser_ = first.denoiser_->another();
    of_ = first.pipeline_;
    denoiser_of_ = first.denoiser;
    kept_.clear();
  }
  auto told_dtype = [](const Run& r) { return (r.schedule.told ? r.schedule.told : r.schedule.timesteps).dtype(); };
  const bool same = std::all_of(runs.begin(), runs.end(), [&](Run* r) { return told_dtype(*r) == told_dtype(first); });
  const DType dtype = same ? told_dtype(first) : kFloat32;
  std::vector<DenoiserCall> calls;
  for (Run* run : runs) {
    run->begin_step();
    const Tensor input = model_input(*first.pipeline_->the_denoiser(), *run->scheduler, run->latents,
                                     run->schedule.values[run->at_], run->guidance);
    const Tensor timestep = run->schedule.told_timestep(run->at_).to(dtype).unsqueeze(0).expand({run->rows()});
    calls.push_back(run->told.with(run->guidance.on() ? cat({input, input}, 0) : input, timestep));
  }
  DenoiserCall all = calls[0];
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].tensor || is_shared(all[i].role)) continue;
    std::vector<Tensor> parts;
    for (auto& c : calls) parts.push_back(c[i].tensor);
    const bool changes = all[i].role == ArgumentRole::Sample || all[i].role == ArgumentRole::Timestep;
    all[i].tensor = changes ? cat(with_blanks(parts, place, rows), 0)
                            : joined(i, all[i].role == ArgumentRole::Text, parts, place, rows);
  }
  Tensor output;
  {
    cpu::LeanMemory lean;
    output = denoiser_->predict(all);
  }
  std::vector<std::exception_ptr> errors;
  for (Run* run : runs) {
    const int64_t own = run->rows();
    try {
      run->advance(guided(output.narrow(0, place, own), run->guidance, run->output_channels));
      run->end_step(place, rows);
      errors.push_back(nullptr);
    } catch (const std::exception&) {
      errors.push_back(std::current_exception());
    }
    place += own;
  }
  return errors;
}

}  // namespace sf::diffusion
