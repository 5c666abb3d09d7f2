#include "scaffolding/diffusion/memory/plan.h"

#include <algorithm>
#include <numeric>

#include "scaffolding/core/error.h"

namespace sf::diffusion {

namespace {

const int64_t kSlots = nn::StreamOptions().slots;
// The kernel takes back pages of files that stay, a moment before they are wanted again, as soon as others are read at
// the limit; with a thirty-second of it left (SDXL in 3 GB) it takes none, with a hundredth a fifth of its time.
constexpr int64_t kHostSlack = 32;

struct Profile {
  const char* name;
  bool text, denoiser, autoencoder;  // on the GPU
  GuidanceMode guidance;
  Cleanup cleanup;
  int64_t every = 1;
};
constexpr Profile kProfiles[] = {
    {"full_gpu", true, true, true, GuidanceMode::Batched, Cleanup::None},
    {"balanced", false, true, true, GuidanceMode::Batched, Cleanup::Phase},
    {"unet_gpu", false, true, false, GuidanceMode::Sequential, Cleanup::Step, 10},
    {"gpu_poor", false, true, false, GuidanceMode::Sequential, Cleanup::Phase},
    {"extreme", false, true, false, GuidanceMode::Sequential, Cleanup::Step},
    {"cpu_only", false, false, false, GuidanceMode::Sequential, Cleanup::None},
};

int64_t bytes_of_blocks(const PartFacts& f) { return std::accumulate(f.blocks.begin(), f.blocks.end(), int64_t(0)); }

// The least that its weights take at a time: what is not in blocks, and the slots.
int64_t least_streamed(const PartFacts& f) {
  return f.bytes - bytes_of_blocks(f) + nn::stream_footprint(f.blocks, 0, kSlots).device_bytes();
}

int64_t decoding(const Activations& a, const Autoencoder::Savings& vae) {
  return vae.tiling ? a.decode_tiled : vae.slicing ? a.decode_sliced : a.decode;
}

struct Need {
  int64_t bytes = 0;
  const PartPlan* part = nullptr;
};

class Planner {
 public:
  Planner(const PlanFacts& facts, const PlanRequest& request) : facts_(facts), request_(request) {
    plan_.pipeline = facts.pipeline;
    plan_.device = facts.device;
    plan_.activations = facts.activations, plan_.host_activations = facts.host_activations;
    plan_.workspace = facts.workspace;
    for (auto& f : facts.parts) plan_.parts.push_back({.facts = f, .weights = f.bytes});
  }

  MemoryPlan made() {
    const Profile* named = profile();
    check(named);
    const int64_t vram = facts_.free_device.value_or(0), ram = facts_.free_host;
    plan_.device_budget = std::min(vram, request_.max_vram.value_or(vram));
    plan_.host_budget = std::min(ram, request_.max_ram.value_or(ram));
    if (named) as_named(*named);
    else automatically();
    plan_host();
    settle();
    return std::move(plan_);
  }

  // `plan` within another budget of the GPU, and nothing else of it changed.
  std::optional<MemoryPlan> made_anew(const MemoryPlan& plan, int64_t device_budget) {
    plan_ = plan;
    plan_.device_budget = device_budget;
    if (!fit(true, device_budget)) return {};
    settle();
    return std::move(plan_);
  }

 private:
  const Profile* profile() const {
    if (request_.profile == "auto") return nullptr;
    for (auto& p : kProfiles)
      if (request_.profile == p.name) return &p;
    std::string names = "'auto'";
    for (auto& p : kProfiles) names += std::string(", '") + p.name + "'";
    fail("memory_plan: profile must be one of ", names, ", got '", request_.profile, "'");
  }

  void check(const Profile* named) const {
    for (auto [what, v] : {std::pair{"max_vram", request_.max_vram}, {"max_ram", request_.max_ram}})
      SF_CHECK(v.value_or(0) >= 0, "memory_plan: ", what, " must not be negative, got ", *v);
    if (!named) return;
    SF_CHECK(named->denoiser || request_.max_vram.value_or(0) == 0,
             "memory_plan: profile 'cpu_only' uses no GPU, so that it takes no max_vram");
    SF_CHECK(!named->denoiser || facts_.free_device, "memory_plan: profile '", named->name,
             "' needs a GPU, and there is none; 'cpu_only' and 'auto' do without");
    SF_CHECK(!named->denoiser || request_.max_vram != 0, "memory_plan: profile '", named->name,
             "' and max_vram of 0 contradict each other; 'cpu_only' uses no GPU");
  }

  // ---- what a part takes

  int64_t activations(const PartPlan& p, GuidanceMode guidance, const Autoencoder::Savings& vae) const {
    return tensors(p, guidance, vae) + (p.on_device ? 0 : p.facts.packed);
  }
  int64_t tensors(const PartPlan& p, GuidanceMode guidance, const Autoencoder::Savings& vae) const {
    const Activations& a = p.on_device ? facts_.activations : facts_.host_activations;
    switch (p.facts.kind) {
      case PartKind::TextEncoder: {
        auto at = a.text.find(p.facts.name);
        return at == a.text.end() ? 0 : at->second;
      }
      case PartKind::Denoiser: return guidance == GuidanceMode::Batched ? a.batched : a.sequential;
      case PartKind::Autoencoder: return std::max({vae.tiling ? a.encode_tiled : a.encode, decoding(a, vae), a.pixels});
    }
    return 0;
  }
  int64_t activations(const PartPlan& p) const { return activations(p, plan_.guidance, plan_.vae); }

  // Weights that stay in host memory while the part is not called.
  static int64_t held_on_host(const PartPlan& p) {
    if (p.on_device) return p.residency == Residency::Resident || p.facts.mapped ? 0 : p.facts.bytes;
    return p.residency == Residency::Resident || !p.facts.mapped ? p.weights : 0;
  }
  static int64_t held(const PartPlan& p, bool device) {
    if (!device) return held_on_host(p);
    return p.on_device && p.residency == Residency::Resident ? p.weights : 0;
  }
  int64_t held(bool device) const {
    int64_t bytes = 0;
    for (auto& p : plan_.parts) bytes += held(p, device);
    return bytes;
  }
  // The most that is taken of one memory at a time.
  int64_t peak(bool device) const {
    int64_t most = 0;
    bool used = !device;
    for (auto& p : plan_.parts) {
      if (p.on_device != device) continue;
      used = true;
      most = std::max(most, p.weights - held(p, device) + activations(p) + in_graphs(p) + not_gone(p, device));
    }
    return used ? held(device) + most + facts_.workspace : 0;
  }

  // What ran before p and is still there: a part that comes makes the others go, one that stays does not.
  int64_t not_gone(const PartPlan& p, bool device) const {
    int64_t most = 0;
    if (p.residency == Residency::Resident)
      for (auto& q : plan_.parts)
        if (q.on_device == device && q.residency != Residency::Resident)
          most = std::max(most, q.weights - held(q, device));
    return most;
  }

  // What captured calls of the denoiser keep while p runs.
  int64_t in_graphs(const PartPlan& p) const {
    if (!plan_.keeps_graphs || !p.on_device || p.facts.kind == PartKind::Denoiser) return 0;
    for (auto& q : plan_.parts)
      if (q.facts.kind == PartKind::Denoiser && q.on_device && q.residency == Residency::Resident)
        return activations(q);
    return 0;
  }

  // A part by itself in a memory, its weights streamed as far as they can be.
  int64_t least(const PartPlan& p, bool device) const {
    const bool streams = device || p.facts.mapped;
    return (streams ? least_streamed(p.facts) : p.facts.bytes) + activations(p) + facts_.workspace;
  }
  Need least(bool device) const {
    Need most;
    for (auto& p : plan_.parts) {
      if (p.on_device != device) continue;
      const int64_t others = held_by_others(p, device);
      if (const int64_t n = least(p, device) + others; n > most.bytes) most = {n, &p};
    }
    return most;
  }
  // Host memory of weights that are no pages of a file is taken whoever is called.
  int64_t held_by_others(const PartPlan& p, bool device) const {
    int64_t bytes = 0;
    if (device) return 0;
    for (auto& q : plan_.parts)
      if (&q != &p && !q.facts.mapped && !(q.on_device && q.residency == Residency::Resident)) bytes += q.facts.bytes;
    return bytes;
  }

  // ---- making them fit

  static void stay(PartPlan& p, Residency r) {
    p.residency = r, p.blocks = {}, p.resident_bytes = INT64_MAX, p.weights = p.facts.bytes;
  }

  // As many of its blocks as fit stay. False where not even the slots do.
  static bool stream(PartPlan& p, int64_t available) {
    const int64_t kept = p.facts.bytes - bytes_of_blocks(p.facts);
    const auto resident = nn::resident_bytes_within(p.facts.blocks, available - kept, kSlots);
    if (!resident || p.facts.blocks.empty()) return false;
    p.resident_bytes = *resident;
    p.blocks = nn::stream_footprint(p.facts.blocks, *resident, kSlots);
    p.weights = kept + p.blocks.device_bytes();
    p.residency = p.blocks.streamed_bytes ? Residency::Streamed : Residency::Phase;
    return true;
  }

  // All parts of one memory within a budget.
  bool fit(bool device, int64_t budget, bool all_resident = false) {
    std::vector<PartPlan*> here;
    for (auto& p : plan_.parts)
      if (p.on_device == device) here.push_back(&p), stay(p, Residency::Resident);
    if (device) plan_.keeps_graphs = true;
    if (peak(device) <= budget) return true;
    if (device) plan_.keeps_graphs = false;
    if (peak(device) <= budget) return true;
    if (all_resident) return false;
    for (auto* p : here)
      if (device || p->facts.mapped) stay(*p, Residency::Phase);
    for (auto* p : here) {
      const int64_t available = budget - facts_.workspace - activations(*p) - held_by_others(*p, device);
      if (p->facts.bytes <= available) continue;
      if (!(device || p->facts.mapped)) return false;
      if (!(!device && stream(*p, available - budget / kHostSlack)) && !stream(*p, available)) return false;
    }
    // What can stay besides needs not come and go.
    for (PartKind kind : {PartKind::Denoiser, PartKind::Autoencoder, PartKind::TextEncoder})
      for (auto* p : here) {
        if (p->facts.kind != kind || p->residency != Residency::Phase) continue;
        p->residency = Residency::Resident;
        if (peak(device) > budget) p->residency = Residency::Phase;
      }
    return true;
  }

  // The first way of decoding that fits beside nothing else.
  void choose_decoding(bool device, int64_t budget) {
    for (auto& p : plan_.parts) {
      if (p.facts.kind != PartKind::Autoencoder || p.on_device != device) continue;
      for (bool streamed : {false, true})
        for (Autoencoder::Savings s : {Autoencoder::Savings{}, {true, false}, {true, true, kPlannedTile}}) {
          plan_.vae = s;
          const int64_t alone = streamed ? least(p, device) : p.facts.bytes + activations(p) + facts_.workspace;
          if (alone + held_by_others(p, device) <= budget) return;
        }
    }
  }

  PartPlan* denoiser() {
    for (auto& p : plan_.parts)
      if (p.facts.kind == PartKind::Denoiser) return &p;
    return nullptr;
  }

  void as_named(const Profile& profile) {
    plan_.profile = profile.name;
    plan_.guidance = profile.guidance, plan_.cleanup = profile.cleanup, plan_.cleanup_every = profile.every;
    for (auto& p : plan_.parts)
      p.on_device = p.facts.kind == PartKind::TextEncoder ? profile.text
                    : p.facts.kind == PartKind::Denoiser  ? profile.denoiser
                                                          : profile.autoencoder;
    if (!profile.denoiser) return;
    const bool strict = profile.text;  // full_gpu is all of it, always
    choose_decoding(true, plan_.device_budget);
    if (fit(true, plan_.device_budget, strict)) return;
    if (!strict) refuse(true, least(true));
    for (auto& p : plan_.parts) stay(p, Residency::Resident);
    plan_.vae = {};
    fail("memory_plan: ", budget_text(true), " is too little for profile 'full_gpu', which needs at least ",
         bytes_text(peak(true)), "; 'auto' does with less");
  }

  void automatically() {
    plan_.automatic = true;
    if (plan_.device_budget > 0 && !facts_.parts.empty()) {
      for (auto& p : plan_.parts) p.on_device = true;
      if (PartPlan* d = denoiser(); d && least(*d, true) > plan_.device_budget) {
        plan_.guidance = GuidanceMode::Sequential;
        if (least(*d, true) > plan_.device_budget) {
          for (auto& p : plan_.parts) p.on_device = false;
          plan_.guidance = GuidanceMode::Batched;
        }
      }
      choose_decoding(true, plan_.device_budget);
      for (auto& p : plan_.parts)
        if (p.on_device && least(p, true) > plan_.device_budget) {
          p.on_device = false;
          if (p.facts.kind == PartKind::Autoencoder) plan_.vae = {};
        }
      fit(true, plan_.device_budget);
    }
  }

  // What runs on the host, and what of the others stays there meanwhile.
  void plan_host() {
    const bool decodes = std::any_of(plan_.parts.begin(), plan_.parts.end(),
                                     [](auto& p) { return p.facts.kind == PartKind::Autoencoder && !p.on_device; });
    if (decodes) choose_decoding(false, plan_.host_budget);
    if (PartPlan* d = denoiser(); plan_.automatic && d && !d->on_device)
      if (least(*d, false) + held_by_others(*d, false) > plan_.host_budget) plan_.guidance = GuidanceMode::Sequential;
    if (!fit(false, plan_.host_budget)) {
      Need n = least(false);
      if (n.bytes == 0) n.bytes = peak(false);
      refuse(false, n);
    }
    // Copies from pinned memory are faster than from pages of a file.
    int64_t left = plan_.host_budget - peak(false);
    for (auto& p : plan_.parts)
      if (p.on_device && p.residency == Residency::Streamed)
        p.pinned = std::max<int64_t>(0, std::min(left, p.blocks.streamed_bytes)), left -= p.pinned;
  }

  std::string budget_text(bool device) const {
    const auto& asked = device ? request_.max_vram : request_.max_ram;
    const int64_t budget = device ? plan_.device_budget : plan_.host_budget;
    if (asked && budget == *asked) return std::string(device ? "max_vram" : "max_ram") + " of " + bytes_text(budget);
    return bytes_text(budget) + " of free " + (device ? "GPU" : "host") + " memory";
  }

  // Weights that no file has.
  std::string what_cannot_leave() const {
    std::string names;
    for (auto& p : plan_.parts)
      if (!p.facts.mapped && !(p.on_device && p.residency == Residency::Resident))
        names += (names.empty() ? "" : ", ") + p.facts.name;
    if (names.empty()) return {};
    return "; weights of " + names +
           " are in no file as they are now, so that they stay in host memory: load them in the dtype of their file";
  }

  [[noreturn]] void refuse(bool device, const Need& need) const {
    std::string by;
    if (need.part) by = ": " + need.part->facts.name + " takes that";
    fail("memory_plan: ", budget_text(device), " is too little for a ", facts_.pipeline,
         plan_.automatic ? std::string() : " with profile '" + plan_.profile + "'", ", which needs at least ",
         bytes_text(need.bytes), " of ", device ? "GPU" : "host", " memory", by, device ? "" : what_cannot_leave(),
         "; a smaller picture or batch takes less");
  }

  void settle() {
    for (auto& p : plan_.parts) p.activations = activations(p);
    plan_.device_peak = peak(true), plan_.host_peak = peak(false);
    for (auto& p : plan_.parts) plan_.host_peak += p.pinned;
    if (!plan_.automatic) return;
    const bool goes =
        std::any_of(plan_.parts.begin(), plan_.parts.end(), [](auto& p) { return p.residency != Residency::Resident; });
    const bool tight = plan_.guidance == GuidanceMode::Sequential || plan_.vae.tiling;
    if (goes || plan_.vae.slicing || !plan_.keeps_graphs) plan_.cleanup = tight ? Cleanup::Step : Cleanup::Phase;
    const PartPlan* d = denoiser();
    plan_.profile = !d || !d->on_device ? "cpu_only"
                    : tight             ? "extreme"
                    : plan_.streams()   ? "gpu_poor"
                    : goes              ? "balanced"
                                        : "full_gpu";
    if (plan_.profile == "balanced" || plan_.profile == "full_gpu")
      for (auto& p : plan_.parts)
        if (!p.on_device) plan_.profile = "balanced";
  }

  const PlanFacts& facts_;
  const PlanRequest& request_;
  MemoryPlan plan_;
};

const char* words_of(const PartPlan& p) { return p.residency == Residency::Resident ? "always" : "while it runs"; }

}  // namespace

const std::vector<std::string>& profile_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all{"auto"};
    for (auto& p : kProfiles) all.push_back(p.name);
    return all;
  }();
  return names;
}

const char* name_of(Cleanup cleanup) {
  return cleanup == Cleanup::None ? "none" : cleanup == Cleanup::Phase ? "phase" : "step";
}

size_t PartPlan::resident_blocks() const {
  if (residency != Residency::Streamed) return facts.blocks.size();
  return size_t(std::count(blocks.stays.begin(), blocks.stays.end(), true));
}

const PartPlan* MemoryPlan::find(std::string_view part) const {
  for (auto& p : parts)
    if (p.facts.name == part) return &p;
  return nullptr;
}

int64_t MemoryPlan::decode_bytes() const {
  for (auto& p : parts)
    if (p.facts.kind == PartKind::Autoencoder) return decoding(p.on_device ? activations : host_activations, vae);
  return 0;
}

bool MemoryPlan::streams() const {
  return std::any_of(parts.begin(), parts.end(), [](auto& p) { return p.residency == Residency::Streamed; });
}

RunSavings MemoryPlan::savings() const {
  return {.sequential_guidance = guidance == GuidanceMode::Sequential,
          .between_phases = cleanup != Cleanup::None || !keeps_graphs,
          .every_steps = cleanup == Cleanup::Step ? cleanup_every : 0};
}

MemoryPlan plan_memory(const PlanFacts& facts, const PlanRequest& request) { return Planner(facts, request).made(); }

std::optional<nn::StreamOptions> MemoryPlan::stream_options(const PartPlan& part,
                                                            std::shared_ptr<nn::StreamPhases> phases) const {
  if (part.residency == Residency::Resident) return {};
  return nn::StreamOptions{.device = part.on_device ? Device(device) : Device(),
                           .resident_bytes = part.resident_bytes,
                           .pinned_bytes = part.pinned,
                           .load_now = false,
                           .phases = std::move(phases)};
}

std::optional<int64_t> MemoryPlan::bytes_to_evict(const MemoryPlan& before, const PartPlan& part) const {
  const PartPlan* was = before.find(part.facts.name);
  if (!was || was->on_device != part.on_device || (part.on_device && before.device != device)) return {};
  if (was->residency == part.residency && was->resident_bytes == part.resident_bytes && was->pinned == part.pinned)
    return 0;
  const bool streams = part.residency == Residency::Streamed && was->residency != Residency::Resident;
  return streams && part.weights < was->weights ? std::optional(was->weights - part.weights) : std::nullopt;
}

std::optional<MemoryPlan> MemoryPlan::with_less() const {
  PlanFacts facts{.pipeline = pipeline,
                  .activations = activations,
                  .host_activations = host_activations,
                  .device = device,
                  .workspace = workspace};
  const PlanRequest request{.profile = profile};
  const int64_t less = std::max<int64_t>((device_peak - workspace) / 8, 1);
  return Planner(facts, request).made_anew(*this, device_peak - less);
}

std::string MemoryPlan::str() const {
  std::vector<std::vector<std::string>> rows{
      {"part", "device", "format", "weights", "there", "at a time", "activations"}};
  for (auto& p : parts) {
    std::string there = words_of(p);
    if (p.residency == Residency::Streamed)
      there = std::to_string(p.resident_blocks()) + " of " + std::to_string(p.facts.blocks.size()) + " blocks";
    rows.push_back({p.facts.name, p.on_device ? device : "cpu", p.facts.format, bytes_text(p.facts.bytes), there,
                    bytes_text(p.weights), bytes_text(p.activations)});
  }
  std::vector<size_t> width(rows[0].size());
  for (auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  std::string out = pipeline + ": profile " + profile + (automatic ? " (auto)" : "") + ", guidance " +
                    diffusion::name_of(guidance) + ", cleanup " + diffusion::name_of(cleanup) + ", pictures decoded " +
                    (vae.tiling    ? "in tiles"
                     : vae.slicing ? "one at a time"
                                   : "whole") +
                    "\n";
  for (auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(width[i] - row[i].size(), ' ');
      line.append(2, ' ').append(i == 3 || i > 4 ? pad + row[i] : row[i] + pad);  // bytes to the right
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  out += peaks();
  for (auto& note : notes) out += note + "\n";
  return out;
}

std::string MemoryPlan::peaks(const PeakMemory* measured) const {
  std::string out;
  auto peak = [&](const std::string& where, int64_t predicted, int64_t budget, int64_t was) {
    out += "predicted peak of " + where + ": " + bytes_text(predicted) + " of " + bytes_text(budget);
    out += measured ? ", measured: " + bytes_text(was) + "\n" : "\n";
  };
  for (auto& p : parts)
    if (const int64_t bytes = decode_bytes(); p.facts.kind == PartKind::Autoencoder && bytes)
      out += "decoding takes " + bytes_text(bytes) + " of " + (p.on_device ? device : "host memory") + " beside the " +
             p.facts.name + "'s weights\n";
  if (device_peak) peak(device, device_peak, device_budget, measured ? measured->device() : 0);
  peak("host memory", host_peak, host_budget, measured ? measured->host() : 0);
  return out;
}

std::string bytes_text(int64_t bytes) {
  char text[40];
  if (bytes >= 1'000'000'000) std::snprintf(text, sizeof text, "%.2f GB", double(bytes) / 1e9);
  else if (bytes >= 10'000'000) std::snprintf(text, sizeof text, "%.0f MB", double(bytes) / 1e6);
  else if (bytes >= 1'000'000) std::snprintf(text, sizeof text, "%.1f MB", double(bytes) / 1e6);
  else if (bytes >= 1000) std::snprintf(text, sizeof text, "%.1f kB", double(bytes) / 1e3);
  else std::snprintf(text, sizeof text, "%lld bytes", static_cast<long long>(bytes));
  return text;
}

int64_t bytes_of(const std::string& who, const std::string& text) {
  size_t at = 0;
  double number = -1;
  try {
    number = std::stod(text, &at);
  } catch (const std::exception&) {
    at = 0;
  }
  std::string unit;
  for (char c : text.substr(at))
    if (c != ' ') unit += char(std::toupper(static_cast<unsigned char>(c)));
  double scale = 0;
  for (auto [name, bytes] : {std::pair{"", 1e9},
                             {"B", 1.0},
                             {"KB", 1e3},
                             {"MB", 1e6},
                             {"GB", 1e9},
                             {"TB", 1e12},
                             {"KIB", 0x1p10},
                             {"MIB", 0x1p20},
                             {"GIB", 0x1p30},
                             {"TIB", 0x1p40}})
    if (unit == name) scale = bytes;
  SF_CHECK(at > 0 && scale > 0 && number >= 0 && number * scale < 0x1p62, who,
           ": must be an amount of memory such as 6, 6GB, 500MB or 5.5GiB, got '", text, "'");
  return int64_t(number * scale);
}

}  // namespace sf::diffusion
