#include "scaffolding/diffusion/pipelines/run.h"

#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/accelerator.h"
#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/diffusion/pipelines/clip_frames.h"
#include "scaffolding/diffusion/pipelines/pipeline.h"
#include "scaffolding/diffusion/pipelines/weight_pages.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

void Run::step() {
  autograd::NoGrad no_grad;
  begin_step();
  advance(noise_within_memory());
  end_step(0, rows());
}

void Run::begin_step() {
  SF_CHECK_AS(RuntimeError, !done(), pipeline_->name(), ": the run has no step left after ", at_);
  if (stop_.stop_requested())
    fail<Stopped>(pipeline_->name(), ": stopped after ", done_, " of ", schedule.num_inference_steps, " steps");
  prepare_step();
}

void Run::end_step(int64_t place, int64_t rows) {
  if (calls_.empty() || calls_.back().place != place || calls_.back().rows != rows) calls_.push_back({0, place, rows});
  ++calls_.back().steps;
  const size_t i = at_++;
  if (callback_) {
    StepState state{.step = int64_t(i), .timestep = schedule.timestep(i), .tensors = tensors, .guidance = guidance};
    callback_(state);
    interrupted_ = interrupted_ || state.interrupt;
  }
  const int64_t n = int64_t(at_);
  if (savings_.every_steps > 0 && n % savings_.every_steps == 0) give_back();
  if (n == int64_t(schedule.size()) || (n > warmup_ && n % scheduler->order() == 0)) {
    ++done_;
    if (progress_) progress_(std::min(done_, schedule.num_inference_steps), schedule.num_inference_steps);
  }
}

// Of all samples, or as many at a time as memory suffices for.
Tensor Run::noise() {
  auto of = [&](const Tensor& samples, const DenoiserCall& call) { return predicted(*denoiser_, samples, call); };
  const int64_t batch = latents.size(0);
  if (samples_ == 0 || samples_ >= batch) return of(latents, told);
  Tensors parts;
  for (int64_t begin = 0; begin < batch; begin += samples_) {
    const int64_t n = std::min(samples_, batch - begin);
    DenoiserCall call = told;
    call.keep_samples(arange(begin, begin + n), batch, guidance.on());
    parts.push_back(of(latents.narrow(0, begin, n), call));
  }
  return cat(parts, 0);
}

// Where memory does not suffice: nothing is captured, then networks leave the device, then both halves of guidance go
// one after the other, then fewer samples at a time; so from then on.
Tensor Run::noise_within_memory() {
  for (;;) {
    try {
      return noise();
    } catch (const OutOfMemory& e) {
      const int64_t samples = samples_ ? samples_ : latents.size(0);
      if (denoiser_->stop_capturing()) {
        makeshifts_.push_back("the denoiser's calls not captured");
      } else if (make_room()) {
      } else if (guidance.on() && guidance.mode == GuidanceMode::Batched) {
        guidance.mode = GuidanceMode::Sequential;
        makeshifts_.push_back("guidance in two calls");
      } else if (samples > 1) {
        samples_ = (samples + 1) / 2;
        makeshifts_.push_back(std::to_string(samples_) + " of " + std::to_string(latents.size(0)) +
                              " pictures at a time");
      } else {
        fail_out_of_memory(e);
      }
    }
    give_back();
  }
}

bool Run::make_room() const {
  if (!pipeline_->placement || !pipeline_->placement->make_room()) return false;
  say_room_was_made();
  return true;
}

void Run::say_room_was_made() const {
  const char* what = "networks with less memory of the GPU";
  if (std::find(makeshifts_.begin(), makeshifts_.end(), what) == makeshifts_.end()) makeshifts_.push_back(what);
}

// As the autoencoder is set, and where memory does not suffice networks leave the device, then pictures are decoded one
// at a time, then in tiles.
void Run::decode_within_memory(const std::function<void()>& decode) const {
  auto vae = pipeline_->the_autoencoder();
  if (!vae) return decode();
  struct Before {
    Autoencoder& vae;
    Autoencoder::Savings savings = vae.savings();
    ~Before() { vae.save(savings); }
  } before{*vae};
  auto save = [&](bool slicing, bool tiling, const char* name) {  // false: so it is already, or cannot be
    const Autoencoder::Savings now = vae->savings();
    if (now.slicing >= slicing && now.tiling >= tiling) return false;
    vae->save({.slicing = slicing, .tiling = tiling});
    const Autoencoder::Savings then = vae->savings();
    if (then.slicing != slicing || then.tiling != tiling) return false;
    give_back();
    makeshifts_.push_back(name);
    return true;
  };
  for (;;) {
    try {
      return decode();
    } catch (const OutOfMemory& e) {
      if (!make_room() && !save(true, before.savings.tiling, "pictures decoded one at a time") &&
          !save(true, true, "pictures decoded in tiles"))
        fail_out_of_memory(e);
    }
  }
}

void Run::fail_out_of_memory(const Error& e) const {
  std::string tried;
  for (auto& what : makeshifts_) tried += (tried.empty() ? " Tried: " : ", ") + what;
  fail<OutOfMemory>(e.what(), tried.empty() ? "" : ".", tried);
}

void Run::give_back() const {
  cpu::empty_cache();
  const Device device = latents.device();
  if (device.is_cuda()) accelerator(device).empty_cache(device.index);
}

Tensor Run::predicted(Denoiser& denoiser, const Tensor& samples, const DenoiserCall& call) {
  return predict_noise(denoiser, *scheduler, samples, schedule, at_, call, guidance, output_channels);
}

Tensor Run::told_times(const Tensor& timesteps) const {
  SF_CHECK_AS(NotSupported, !schedule.told, "a ", pipeline_->name(),
              " tells its network other times than its scheduler's, which a training run does not know");
  return timesteps;
}

DenoiserCall Run::joined(const std::vector<DenoiserCall>& calls) const {
  DenoiserCall all = calls.at(0);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].tensor || (all[i].role != ArgumentRole::PerSample && all[i].role != ArgumentRole::Text)) continue;
    Tensors parts;
    for (auto& call : calls) parts.push_back(call[i].tensor);
    all[i].tensor = cat(parts, 0);
  }
  return all;
}

void Run::advance(const Tensor& model_output) {
  latents = scheduler->step(model_output, schedule.values[at_], latents, step_options).prev_sample;
}

Tensor Run::pictures_of(const Tensor& of) const {
  Tensor values;
  decode_within_memory([&] { values = pipeline_->decoded(decodable(of)); });
  values = shaped(values);
  return in_unit_range(std::move(values));
}

std::vector<Tensors> Run::frames_of(const Tensor& of, const DecodeProgress& progress) const {
  ClipFrames clips;
  decode_within_memory([&] {
    clips = {};
    decode_in_parts(*pipeline_, decodable(of), [&](models::VideoPart part) {
      if (part.values.ndim() == 4) part.values = shaped(part.values).unsqueeze(2);
      clips.take(part);
      if (progress) progress(part.done);
    });
  });
  return clips.joined();
}

StopWhen Run::stops() const {
  return StopWhen([stop = stop_] { return stop.stop_requested(); });
}

void Run::leave_steps() const {
  if (savings_.between_phases) {
    pipeline_->graphs->clear();  // captured calls keep what they take
    give_back();
  }
  if (denoiser && !output_latents) release_weight_pages(*denoiser, savings_.between_phases);
}

PipelineOutput Run::finish() {
  autograd::NoGrad no_grad;
  const StopWhen stop = stops();
  leave_steps();
  const Tensor images = output_latents ? returned_latents() : pictures_of(latents);
  return {images, sound(), truncated, makeshifts_};
}

PipelineFrames Run::finish_frames(const DecodeProgress& progress) {
  autograd::NoGrad no_grad;
  SF_CHECK(!output_latents, pipeline_->name(), ": the run was asked for latents, which have no frames");
  const StopWhen stop = stops();
  leave_steps();
  std::vector<Tensors> clips = frames_of(latents, progress);
  return {std::move(clips), sound(), truncated, makeshifts_};
}

Tensor Run::first_samples(int64_t n) const { return n ? latents.narrow(0, 0, n) : latents; }

Tensor Run::preview(int64_t n) const {
  autograd::NoGrad no_grad;
  const StopWhen stop = stops();
  return pictures_of(first_samples(n));
}

std::vector<Tensors> Run::preview_frames(int64_t n) const {
  autograd::NoGrad no_grad;
  const StopWhen stop = stops();
  return frames_of(first_samples(n));
}

void Run::keep_samples(const std::vector<int64_t>& places) {
  const int64_t batch = latents.size(0);
  for (int64_t p : places)
    SF_CHECK(p >= 0 && p < batch, pipeline_->name(), ": keep_samples takes places in a batch of ", batch, ", got ", p);
  SF_CHECK(!places.empty(), pipeline_->name(),
           ": keep_samples needs at least one place; a run without samples is interrupted");
  autograd::NoGrad no_grad;
  const Tensor kept = tensor(places, {int64_t(places.size())}, kInt64);
  told.keep_samples(kept, batch, guidance.on());
  latents = index_select(latents, 0, kept.to(latents.device()));
  scheduler->keep_samples(kept);
  keep_more(kept);
  if (step_options.generator.size() > 1) {
    Generators generators;
    for (int64_t p : places) generators.push_back(step_options.generator[size_t(p)]);
    step_options.generator = std::move(generators);
  }
}

}  // namespace sf::diffusion
