#include "scaffolding/diffusion/memory/plan.h"

#include <gtest/gtest.h>

#include <numeric>

#include "scaffolding/core/error.h"

namespace sf::diffusion {
namespace {

constexpr int64_t kMB = 1'000'000, kGB = 1'000'000'000;

// About SDXL in float16 at 1024 x 1024.
PlanFacts facts() {
  PlanFacts f{.pipeline = "StableDiffusionXLPipeline"};
  auto part = [&](const char* name, PartKind kind, int64_t bytes, size_t blocks, int64_t block) {
    f.parts.push_back({name, "Model", "float16", kind, bytes, std::vector<int64_t>(blocks, block), true});
  };
  part("vae", PartKind::Autoencoder, 167 * kMB, 14, 8 * kMB);
  part("text_encoder", PartKind::TextEncoder, 246 * kMB, 12, 14 * kMB);
  part("text_encoder_2", PartKind::TextEncoder, 1390 * kMB, 32, 40 * kMB);
  part("unet", PartKind::Denoiser, 5135 * kMB, 80, 60 * kMB);
  f.activations = {.text = {{"text_encoder", 10 * kMB}, {"text_encoder_2", 30 * kMB}},
                   .batched = 900 * kMB,
                   .sequential = 450 * kMB,
                   .decode = 3200 * kMB,
                   .decode_sliced = 3200 * kMB,
                   .decode_tiled = 500 * kMB};
  f.host_activations = f.activations;
  f.free_device = 24 * kGB, f.total_device = 24 * kGB;
  f.free_host = 32 * kGB, f.total_host = 64 * kGB;
  return f;
}

std::string refusal(const PlanFacts& f, const PlanRequest& r) {
  try {
    plan_memory(f, r);
  } catch (const ValueError& e) {
    return e.what();
  }
  return "";
}

const PartPlan& part(const MemoryPlan& plan, const char* name) {
  const PartPlan* p = plan.find(name);
  EXPECT_TRUE(p) << name;
  return *p;
}

TEST(MemoryPlan, ChangesNothingWhereAllFits) {
  MemoryPlan plan = plan_memory(facts());
  EXPECT_EQ(plan.profile, "full_gpu");
  EXPECT_TRUE(plan.automatic);
  for (auto& p : plan.parts) EXPECT_TRUE(p.on_device && p.residency == Residency::Resident) << p.facts.name;
  EXPECT_EQ(plan.guidance, GuidanceMode::Batched);
  EXPECT_EQ(plan.cleanup, Cleanup::None);
  EXPECT_FALSE(plan.vae.slicing || plan.vae.tiling);
  EXPECT_EQ(plan.device_peak, (167 + 246 + 1390 + 5135 + 900 + 3200 + 150) * kMB) << "captured calls keep theirs";
  EXPECT_EQ(plan.host_peak, 150 * kMB) << "nothing of the files needs to be in host memory";

  PlanFacts cpu = facts();
  cpu.free_device.reset();
  plan = plan_memory(cpu);
  EXPECT_EQ(plan.profile, "cpu_only");
  EXPECT_EQ(plan.guidance, GuidanceMode::Batched);
  EXPECT_EQ(plan.cleanup, Cleanup::None);
  for (auto& p : plan.parts) EXPECT_TRUE(!p.on_device && p.residency == Residency::Resident) << p.facts.name;
  EXPECT_EQ(plan.device_peak, 0);
  EXPECT_EQ(plan.host_peak, (167 + 246 + 1390 + 5135 + 3200 + 150) * kMB);
}

// Decoding takes 3.2 GB, and the unet's 5.1 GB leave only for a network that comes.
TEST(MemoryPlan, WhatStaysMakesNothingGo) {
  const MemoryPlan plan = plan_memory(facts(), {.max_vram = 8 * kGB});
  EXPECT_EQ(part(plan, "unet").residency, Residency::Phase);
  EXPECT_EQ(part(plan, "vae").residency, Residency::Phase);
  EXPECT_FALSE(plan.vae.tiling);
}

// What changes no bit comes first.
TEST(MemoryPlan, SavesInOrder) {
  const PlanFacts f = facts();
  auto with = [&](int64_t megabytes) { return plan_memory(f, {.max_vram = megabytes * kMB}); };

  MemoryPlan plan = with(8000);  // not all at once, and each in its phase
  EXPECT_EQ(plan.profile, "balanced");
  EXPECT_EQ(plan.cleanup, Cleanup::Phase);
  EXPECT_FALSE(plan.streams());
  EXPECT_EQ(plan.guidance, GuidanceMode::Batched);
  EXPECT_EQ(part(plan, "text_encoder").residency, Residency::Resident) << "small enough to stay";

  plan = with(4000);  // the denoiser's blocks pass through
  EXPECT_EQ(plan.profile, "gpu_poor");
  EXPECT_EQ(part(plan, "unet").residency, Residency::Streamed);
  EXPECT_EQ(part(plan, "unet").resident_blocks(), 40u);  // 4000 - 150 - 900 = 2950 = 335 + 3 * 60 + 40 * 60 + 35
  EXPECT_EQ(part(plan, "unet").blocks.streamed_bytes, 40 * 60 * kMB);
  EXPECT_EQ(part(plan, "text_encoder_2").residency, Residency::Phase);
  EXPECT_EQ(plan.guidance, GuidanceMode::Batched);
  EXPECT_FALSE(plan.vae.tiling);

  plan = with(3000);  // 3.2 GB of one picture do not fit
  EXPECT_EQ(plan.profile, "extreme");
  EXPECT_TRUE(plan.vae.tiling);
  EXPECT_EQ(plan.guidance, GuidanceMode::Batched);

  plan = with(1500);  // 335 + 180 + 900 + 150 is more
  EXPECT_EQ(plan.guidance, GuidanceMode::Sequential);
  EXPECT_EQ(plan.cleanup, Cleanup::Step);
  EXPECT_TRUE(part(plan, "unet").on_device);
  EXPECT_EQ(part(plan, "text_encoder_2").residency, Residency::Streamed);

  plan = with(1000);  // 335 + 180 + 450 + 150
  EXPECT_EQ(plan.profile, "cpu_only");
  EXPECT_FALSE(part(plan, "unet").on_device);
  EXPECT_EQ(plan.guidance, GuidanceMode::Batched) << "the host has enough";
}

// At its limit the kernel would take back pages of what stays.
TEST(MemoryPlan, LeavesTheHostsKernelSomeRoom) {
  PlanFacts f = facts();
  f.free_device.reset();
  for (auto& p : f.parts) p.mapped = true, p.packed = 200 * kMB;
  const MemoryPlan plan = plan_memory(f, {.max_ram = 4800 * kMB});
  const PartPlan& unet = part(plan, "unet");
  EXPECT_EQ(unet.residency, Residency::Streamed);
  EXPECT_EQ(unet.activations, (900 + 200) * kMB) << "what kernels pack of a weight is counted";
  EXPECT_EQ(unet.resident_blocks(), 48u);  // 4800 - 4800 / 32 - 150 - 1100 = 3400 = 335 + 3 * 60 + 48 * 60 + 5
  EXPECT_LE(plan.host_peak, (4800 - 4800 / 32) * kMB);
  const MemoryPlan least = plan_memory(f, {.max_ram = (335 + 3 * 60 + 150 + 1100) * kMB});
  EXPECT_EQ(part(least, "unet").resident_blocks(), 0u) << "where there is none to leave, it runs all the same";
}

// Where memory suffices but for captured calls, theirs is given back between the phases.
TEST(MemoryPlan, GivesGraphsBackFirst) {
  const MemoryPlan whole = plan_memory(facts());
  EXPECT_TRUE(whole.keeps_graphs);
  EXPECT_FALSE(whole.savings().between_phases);
  const MemoryPlan plan = plan_memory(facts(), {.max_vram = whole.device_peak - 1});
  EXPECT_FALSE(plan.keeps_graphs);
  EXPECT_TRUE(plan.savings().between_phases);
  EXPECT_EQ(plan.device_peak, whole.device_peak - 900 * kMB);
  for (auto& p : plan.parts) EXPECT_EQ(p.residency, Residency::Resident) << p.facts.name;
}

// A run that is out of memory asks for less until there is no less; what computes where stays.
TEST(MemoryPlan, TakesLess) {
  MemoryPlan plan = plan_memory(facts());
  size_t plans = 0;
  while (auto less = plan.with_less()) {
    EXPECT_LE(less->device_peak, plan.device_peak - (plan.device_peak - 150 * kMB) / 8);
    EXPECT_EQ(less->guidance, plan.guidance);
    EXPECT_EQ(less->vae.tiling, plan.vae.tiling);
    for (auto& p : less->parts) EXPECT_TRUE(p.on_device) << p.facts.name;
    plan = *less;
    ++plans;
  }
  EXPECT_GE(plans, 5u);
  EXPECT_GE(plan.device_peak, 3350 * kMB) << "the picture is decoded whole";
  EXPECT_EQ(part(plan, "unet").residency, Residency::Streamed);
}

// Whatever the budget, the plan stays within it, and more memory is never used worse.
TEST(MemoryPlan, StaysWithinEveryBudget) {
  const PlanFacts f = facts();
  for (auto& profile : profile_names()) {
    int64_t streamed_before = INT64_MAX;
    size_t planned = 0;
    for (int64_t vram = 500; vram <= 24000; vram += 137) {
      for (int64_t ram : {1000, 4000, 32000}) {
        const PlanRequest request{profile, profile == "cpu_only" ? std::nullopt : std::optional(vram * kMB), ram * kMB};
        MemoryPlan plan;
        try {
          plan = plan_memory(f, request);
        } catch (const ValueError&) {
          continue;
        }
        ++planned;
        EXPECT_LE(plan.device_peak, vram * kMB) << profile;
        EXPECT_LE(plan.host_peak, ram * kMB) << profile << " " << vram;
        for (auto& p : plan.parts) {
          EXPECT_LE(p.weights, p.facts.bytes);
          EXPECT_LE(p.pinned, p.blocks.streamed_bytes);
          EXPECT_LE(p.resident_blocks(), p.facts.blocks.size());
        }
        if (ram < 32000 || profile == "auto") continue;  // guidance changes there too
        int64_t streamed = 0;
        for (auto& p : plan.parts) streamed += p.blocks.streamed_bytes;
        EXPECT_LE(streamed, streamed_before) << profile << " " << vram;
        streamed_before = streamed;
      }
    }
    EXPECT_GT(planned, 100u) << profile;
  }
}

// The least that is named is enough, and a byte less is not.
TEST(MemoryPlan, NamesTheLeastThatFits) {
  PlanFacts f = facts();
  auto least = [&](auto plans) {
    int64_t low = 0, high = 64 * kGB;
    while (high - low > 1) (plans((low + high) / 2) ? high : low) = (low + high) / 2;
    return high;
  };
  for (const char* profile : {"full_gpu", "balanced", "gpu_poor", "extreme"}) {
    f.free_device = 64 * kGB;
    const int64_t bytes = least([&](int64_t v) { return refusal(f, {profile, v}).empty(); });
    const std::string text = refusal(f, {profile, bytes - 1});
    EXPECT_NE(text.find("at least " + bytes_text(bytes)), text.npos) << text;
    EXPECT_NE(text.find("max_vram of " + bytes_text(bytes - 1)), text.npos) << text;
  }
  for (const char* profile : {"auto", "cpu_only"}) {
    f.free_device.reset();
    const int64_t bytes = least([&](int64_t v) { return refusal(f, {profile, {}, v}).empty(); });
    const std::string text = refusal(f, {profile, {}, bytes - 1});
    EXPECT_NE(text.find("at least " + bytes_text(bytes)), text.npos) << text;
    EXPECT_NE(text.find("unet"), text.npos) << text;
  }
  f.free_host = 500 * kMB;
  EXPECT_EQ(refusal(f, {}),
            "memory_plan: 500 MB of free host memory is too little for a StableDiffusionXLPipeline, which needs at "
            "least 1.11 GB of host memory: unet takes that; a smaller picture or batch takes less");
}

TEST(MemoryPlan, KnowsTheProfiles) {
  const PlanFacts f = facts();
  struct Row {
    const char* profile;
    std::vector<std::string> on_device;
    GuidanceMode guidance;
    Cleanup cleanup;
    int64_t every;
  };
  const std::vector<Row> rows{
      {"full_gpu", {"vae", "text_encoder", "text_encoder_2", "unet"}, GuidanceMode::Batched, Cleanup::None, 0},
      {"balanced", {"vae", "unet"}, GuidanceMode::Batched, Cleanup::Phase, 0},
      {"unet_gpu", {"unet"}, GuidanceMode::Sequential, Cleanup::Step, 10},
      {"gpu_poor", {"unet"}, GuidanceMode::Sequential, Cleanup::Phase, 0},
      {"extreme", {"unet"}, GuidanceMode::Sequential, Cleanup::Step, 1},
      {"cpu_only", {}, GuidanceMode::Sequential, Cleanup::None, 0}};
  for (auto& row : rows) {
    MemoryPlan plan = plan_memory(f, {row.profile});
    std::vector<std::string> on_device;
    for (auto& p : plan.parts)
      if (p.on_device) on_device.push_back(p.facts.name);
    EXPECT_EQ(on_device, row.on_device) << row.profile;
    EXPECT_EQ(plan.profile, row.profile);
    EXPECT_EQ(plan.guidance, row.guidance) << row.profile;
    EXPECT_EQ(plan.cleanup, row.cleanup) << row.profile;
    EXPECT_FALSE(plan.automatic);
    const RunSavings s = plan.savings();
    EXPECT_EQ(s.every_steps, row.every) << row.profile;
    EXPECT_EQ(s.between_phases, row.cleanup != Cleanup::None) << row.profile;
    EXPECT_EQ(s.sequential_guidance, row.guidance == GuidanceMode::Sequential) << row.profile;
  }
}

// Weights that are no pages of a file are in host memory whoever runs, and cannot be read anew.
TEST(MemoryPlan, HoldsWhatIsInMemory) {
  PlanFacts f = facts();
  for (auto& p : f.parts) p.mapped = false;
  MemoryPlan plan = plan_memory(f, {.max_vram = 4 * kGB});
  EXPECT_EQ(plan.find("unet")->residency, Residency::Streamed);
  EXPECT_GE(plan.host_peak, 5135 * kMB) << "its home";
  f.free_device.reset();
  const std::string text = refusal(f, {.max_ram = 6 * kGB});
  EXPECT_NE(
      text.find("; weights of vae, text_encoder, text_encoder_2, unet are in no file as they are now, so that they "
                "stay in host memory: load them in the dtype of their file"),
      text.npos)
      << text;
  EXPECT_TRUE(refusal(f, {.max_ram = 9 * kGB}).empty());
  for (auto& p : f.parts) p.mapped = true;
  EXPECT_TRUE(refusal(f, {.max_ram = 3 * kGB}).empty()) << "pages are read when they are wanted";
}

// A run that memory does not suffice for takes blocks off the device where it can, and puts networks there anew where
// it must.
TEST(MemoryPlan, KnowsWhatNeedNotMove) {
  const PlanFacts f = facts();
  const MemoryPlan all = plan_memory(f), phases = plan_memory(f, {.max_vram = 7 * kGB}),
                   blocks = plan_memory(f, {.max_vram = 4 * kGB});
  ASSERT_EQ(part(phases, "unet").residency, Residency::Phase);
  ASSERT_EQ(part(blocks, "unet").residency, Residency::Streamed);
  EXPECT_EQ(blocks.bytes_to_evict(blocks, part(blocks, "unet")), 0);
  EXPECT_EQ(blocks.bytes_to_evict(phases, part(blocks, "unet")), 5135 * kMB - part(blocks, "unet").weights);
  const MemoryPlan less = *blocks.with_less();
  const int64_t bytes = less.bytes_to_evict(blocks, part(less, "unet")).value_or(0);
  EXPECT_EQ(bytes, part(blocks, "unet").weights - part(less, "unet").weights);
  EXPECT_GT(bytes, 0);
  for (auto& [before, after] : {std::pair{&all, &blocks}, {&blocks, &phases}, {&blocks, &all}})
    EXPECT_FALSE(after->bytes_to_evict(*before, part(*after, "unet")));
  const MemoryPlan host = plan_memory(f, {"cpu_only"});
  EXPECT_FALSE(host.bytes_to_evict(blocks, part(host, "unet")));
  EXPECT_FALSE(blocks.bytes_to_evict({}, part(blocks, "unet")));
}

TEST(MemoryPlan, PinsWithinTheHost) {
  const PlanFacts f = facts();
  MemoryPlan plan = plan_memory(f, {.max_vram = 4 * kGB, .max_ram = 1 * kGB});
  EXPECT_EQ(plan.find("unet")->pinned, 850 * kMB);
  EXPECT_EQ(plan.host_peak, 1 * kGB);
  plan = plan_memory(f, {.max_vram = 4 * kGB});
  EXPECT_EQ(plan.find("unet")->pinned, plan.find("unet")->blocks.streamed_bytes);
}

TEST(MemoryPlan, RefusesContradictions) {
  PlanFacts f = facts();
  EXPECT_EQ(refusal(f, {"fast"}),
            "memory_plan: profile must be one of 'auto', 'full_gpu', 'balanced', 'unet_gpu', 'gpu_poor', 'extreme', "
            "'cpu_only', got 'fast'");
  EXPECT_NE(refusal(f, {"cpu_only", 4 * kGB}).find("takes no max_vram"), std::string::npos);
  EXPECT_NE(refusal(f, {"balanced", 0}).find("contradict"), std::string::npos);
  EXPECT_NE(refusal(f, {"auto", -1}).find("max_vram must not be negative, got -1"), std::string::npos);
  EXPECT_NE(refusal(f, {"auto", {}, -5}).find("max_ram must not be negative"), std::string::npos);
  EXPECT_EQ(refusal(f, {"cpu_only", 0}), "");
  f.free_device.reset();
  EXPECT_NE(refusal(f, {"gpu_poor"}).find("needs a GPU, and there is none"), std::string::npos);
}

TEST(MemoryPlan, PrintsATable) {
  const std::string text = plan_memory(facts(), {.max_vram = 4 * kGB}).str();
  for (const char* part :
       {"StableDiffusionXLPipeline: profile gpu_poor (auto), guidance batched, cleanup phase", "40 of 80 blocks",
        "5.13 GB", "while it runs", "predicted peak of cuda: 3.9", "of 4.00 GB", "float16"})
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
  for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    EXPECT_LE(end - at, 120u);
    EXPECT_NE(text[end - 1], ' ');
  }
}

TEST(MemoryPlan, ReadsAmounts) {
  EXPECT_EQ(bytes_of("x", "6"), 6 * kGB);
  EXPECT_EQ(bytes_of("x", "6.5 GB"), 6500 * kMB);
  EXPECT_EQ(bytes_of("x", "500MB"), 500 * kMB);
  EXPECT_EQ(bytes_of("x", "2gib"), int64_t(2) << 30);
  EXPECT_EQ(bytes_of("x", "123B"), 123);
  for (const char* wrong : {"", "GB", "-1", "6XB", "nan", "inf", "1e30", "6 G B x"})
    EXPECT_THROW(bytes_of("--max-vram", wrong), ValueError) << wrong;
  for (auto [bytes, text] : {std::pair<int64_t, const char*>{0, "0 bytes"},
                             {999, "999 bytes"},
                             {1500, "1.5 kB"},
                             {1'500'000, "1.5 MB"},
                             {412 * kMB, "412 MB"},
                             {6940 * kMB, "6.94 GB"}})
    EXPECT_EQ(bytes_text(bytes), text);
}

}  // namespace
}  // namespace sf::diffusion
