// MemoryPlan: where each network of a pipeline lives and what is saved, for the memory there is. A pure function of
// facts, so that a machine can be planned for that is not at hand. What changes no bit of a picture comes first:
// networks leave the device between the phases of a run, then their blocks pass through it; only where a phase's
// activations alone do not fit is guidance done in two calls or a picture decoded in slices and tiles.
#pragma once
#include "scaffolding/backend/peak_memory.h"
#include "scaffolding/diffusion/memory/activations.h"
#include "scaffolding/nn/streaming/stream_footprint.h"
#include "scaffolding/nn/streaming/streamer.h"

namespace sf::diffusion {

// TextEncoder: and what else is asked once a call, before the first step or after the last.
enum class PartKind : uint8_t { TextEncoder, Denoiser, Autoencoder };

struct PartFacts {
  std::string name, type, format;  // "unet", "UNet2DConditionModel", "float16"
  PartKind kind = PartKind::Denoiser;
  int64_t bytes = 0;            // of its weights
  std::vector<int64_t> blocks;  // bytes of its repeated blocks, in their order; the rest is never streamed
  bool mapped = false;          // its weights are pages of a file, of which host memory need hold none
  int64_t packed = 0;           // bytes of scratch that kernels of the CPU take for weights in their own layout
};

struct PlanFacts {
  std::string pipeline;  // its class
  std::vector<PartFacts> parts;
  Activations activations, host_activations;         // of the parts on the GPU, and on the host
  std::string device = "cuda";                       // the GPU, in words of the report
  std::optional<int64_t> free_device, total_device;  // bytes that networks and activations can take; absent: no GPU
  int64_t free_host = 0, total_host = 0;
  // What kernels take beside tensors: libraries' workspaces and scratch, packed copies of weights
  int64_t workspace = 150'000'000;
};

// Profiles of the seeds. What is on the GPU; guidance; cleanup:
//   full_gpu   everything, always; batched; none
//   balanced   denoiser and autoencoder; batched; phase
//   unet_gpu   the denoiser; sequential; step, every 10th
//   gpu_poor   the denoiser; sequential; phase
//   extreme    the denoiser; sequential; step
//   cpu_only   nothing; sequential; none
const std::vector<std::string>& profile_names();

enum class Cleanup : uint8_t { None, Phase, Step };  // when freed memory is given back
const char* name_of(Cleanup cleanup);

struct PlanRequest {
  std::string profile = "auto";
  std::optional<int64_t> max_vram, max_ram;  // bytes; absent: what is free
};

enum class Residency : uint8_t {
  Resident,  // on its device from the beginning to the end
  Phase,     // while it is called
  Streamed,  // while it is called, and only some of its blocks: the others pass through slots
};

struct PartPlan {
  PartFacts facts;
  bool on_device = false;  // else on the host
  Residency residency = Residency::Resident;
  nn::StreamFootprint blocks;  // of a streamed one: which of facts.blocks stay, and what that takes
  int64_t resident_bytes = 0;  // that its streamer is told, for that
  int64_t weights = 0;         // bytes of its weights and slots on its device at a time
  int64_t pinned = 0;          // bytes of staging in host memory
  int64_t activations = 0;     // of its largest call
  size_t resident_blocks() const;
};

struct MemoryPlan {
  std::string pipeline, profile, device;
  bool automatic = false;  // the profile was not asked for by name
  std::vector<PartPlan> parts;
  Activations activations, host_activations;  // that it was made with
  int64_t workspace = 0;
  GuidanceMode guidance = GuidanceMode::Batched;
  Cleanup cleanup = Cleanup::None;
  int64_t cleanup_every = 1;  // steps, of Cleanup::Step
  bool keeps_graphs = true;   // captured calls of the denoiser, whose memory stays theirs in the other phases
  Autoencoder::Savings vae;
  int64_t device_budget = 0, host_budget = 0;
  int64_t device_peak = 0, host_peak = 0;  // predicted, in bytes: weights, activations and workspaces
  std::vector<std::string> notes;          // what could not be counted

  const PartPlan* find(std::string_view part) const;
  // Of decoding in the way that the plan has, beside the autoencoder's weights; of clips until their last frame is
  // there as bytes.
  int64_t decode_bytes() const;
  bool streams() const;
  RunSavings savings() const;
  // How a part comes and goes, or nothing where it stays. phases: of all parts of the same device.
  std::optional<nn::StreamOptions> stream_options(const PartPlan& part, std::shared_ptr<nn::StreamPhases> phases) const;
  // The same devices, guidance and decoding with an eighth of the GPU's peak less, for a run that memory has not
  // sufficed for: networks come and go, and fewer blocks stay. Nothing where that cannot be.
  std::optional<MemoryPlan> with_less() const;
  // Of a network that comes and goes by the plan `before`: bytes of the device that its streamer must give up for it to
  // be as this plan has it, 0 where it is; absent where it must be put there anew.
  std::optional<int64_t> bytes_to_evict(const MemoryPlan& before, const PartPlan& part) const;
  std::string str() const;  // a table to print
  // Its last lines: what decoding takes, then predicted peaks, and measured ones beside them.
  std::string peaks(const PeakMemory* measured = nullptr) const;
};

// ValueError for a profile that there is not, for requests that contradict each other or the machine, and for budgets
// that nothing fits, naming the least that would.
MemoryPlan plan_memory(const PlanFacts& facts, const PlanRequest& request = {});

// "6.94 GB", "412 MB"; thousands are 1000, as on the boxes of GPUs.
std::string bytes_text(int64_t bytes);
// "6", "6GB", "500 MB", "6.5GiB": bytes; a bare number is in GB. ValueError naming `who` for another text.
int64_t bytes_of(const std::string& who, const std::string& text);

}  // namespace sf::diffusion
