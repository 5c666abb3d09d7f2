#include "scaffolding/server/jobs/model_shelf.h"

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/diffusion/pipelines/pipeline_files.h"
#include "scaffolding/diffusion/pipelines/unconditional/pipeline_ddpm.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/unets/unet_2d.h"

namespace sf::server {
namespace {

using diffusion::Task;
using Names = std::vector<std::string>;

class ModelShelfTest : public io::TestFolder {
 protected:
  void SetUp() override {
    io::TestFolder::SetUp();
    models::UNet2DConfig c;
    c.sample_size = int64_t(8);
    c.block_out_channels = {32, 64};
    c.down_block_types = {"DownBlock2D", "DownBlock2D"}, c.up_block_types = {"UpBlock2D", "UpBlock2D"};
    c.layers_per_block = 1, c.norm_num_groups = 4;
    for (const char* name : {"a", "b", "c"}) {
      diffusion::DDPMPipeline p;
      p.unet = diffusion::denoiser(std::make_shared<models::UNet2DModel>(c));
      p.scheduler = diffusion::make_scheduler("DDPMScheduler", io::Object::container(io::Object::Dict));
      diffusion::save_pipeline(p, path("models/" + std::string(name)));
    }
  }
  ShelfSettings settings(double models_of_host, double models_of_gpu = 0, Device device = {}) const {
    const auto bytes = double(std::filesystem::file_size(path("models/a/unet/diffusion_pytorch_model.safetensors")));
    ShelfSettings s{.folders = {path("models")}, .lora_folders = {}, .default_model = "a", .hashes = ""};
    s.device = device;
    s.budget = uint64_t(models_of_host * bytes), s.gpu_budget = uint64_t(models_of_gpu * bytes);
    return s;
  }
  static Names on(const ModelShelf& shelf, Device device) {
    Names names;
    for (auto& r : shelf.resident())
      if (r.device == device) names.push_back(r.name);
    std::sort(names.begin(), names.end());
    return names;
  }
  // A picture of two steps.
  static std::vector<double> picture(const diffusion::DiffusionPipeline& pipeline) {
    diffusion::UnconditionalOptions o;
    o.num_inference_steps = 2;
    o.generator = {make_generator()};
    o.generator[0]->manual_seed(1);
    auto run = pipeline.start(diffusion::AnyOptions::of(o));
    while (!run->done()) run->step();
    const auto values = run->finish().images.cpu().to_vector();
    return {values.begin(), values.end()};
  }
};

TEST_F(ModelShelfTest, WhatWasUsedLongestAgoGoesFirst) {
  ModelShelf shelf(settings(2.5));
  shelf.load("a", Task::TextToImage), shelf.load("b", Task::TextToImage), shelf.load("a", Task::TextToImage);
  EXPECT_EQ(on(shelf, Device()), (Names{"a", "b"}));
  shelf.load("c", Task::TextToImage);
  EXPECT_EQ(on(shelf, Device()), (Names{"a", "c"}));
  EXPECT_EQ(shelf.resident_bytes(), shelf.resident_bytes(Device()));
}

TEST_F(ModelShelfTest, WhatIsInUseStays) {
  ModelShelf shelf(settings(1.5));
  shelf.load("a", Task::TextToImage);
  EXPECT_FALSE(shelf.make_room_for("b", {"a"}));
  shelf.load("b", Task::TextToImage, "", {"a"});  // beyond the budget: both are needed
  EXPECT_EQ(on(shelf, Device()), (Names{"a", "b"}));
  EXPECT_FALSE(shelf.unload_oldest({"a", "b"}));
  shelf.load("c", Task::TextToImage, "", {"b"});
  EXPECT_EQ(on(shelf, Device()), (Names{"b", "c"}));
  EXPECT_TRUE(shelf.unload_oldest({"c"}));
  EXPECT_EQ(on(shelf, Device()), (Names{"c"}));
}

class CudaModelShelf : public ModelShelfTest {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "no GPU and no emulator: " << why;
    ModelShelfTest::SetUp();
  }
  const Device gpu{"cuda"};
};

TEST_F(CudaModelShelf, what_leaves_the_gpu_waits_in_the_hosts_memory) {
  ModelShelf shelf(settings(1.5, 1.5, gpu));
  const auto first = picture(*shelf.load("a", Task::TextToImage));
  shelf.load("b", Task::TextToImage);
  EXPECT_EQ(on(shelf, gpu), (Names{"b"}));
  EXPECT_EQ(on(shelf, Device()), (Names{"a"}));
  EXPECT_EQ(shelf.resident_bytes(gpu), shelf.resident_bytes(Device()));
  EXPECT_EQ(picture(*shelf.load("a", Task::TextToImage)), first) << "there and back";
  EXPECT_EQ(on(shelf, gpu), (Names{"a"}));
  EXPECT_EQ(on(shelf, Device()), (Names{"b"}));
  shelf.load("c", Task::TextToImage);  // the host has room for one
  EXPECT_EQ(on(shelf, gpu), (Names{"c"}));
  EXPECT_EQ(on(shelf, Device()), (Names{"a"}));
}

TEST_F(CudaModelShelf, each_device_has_its_budget) {
  ModelShelf shelf(settings(0.5, 2.5, gpu));
  shelf.load("a", Task::TextToImage), shelf.load("b", Task::TextToImage, "", {"a"});
  EXPECT_EQ(on(shelf, gpu), (Names{"a", "b"}));
  shelf.load("c", Task::TextToImage, "", {"a"});
  EXPECT_EQ(on(shelf, gpu), (Names{"a", "c"})) << "never one in use";
  EXPECT_TRUE(on(shelf, Device()).empty()) << "where it has no room";
}

}  // namespace
}  // namespace sf::server
