#include <gtest/gtest.h>

#include "scaffolding/diffusion/pipelines/pipelines.h"
#include "scaffolding/diffusion/schedulers/schedulers.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/unets/unet_2d.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {
namespace {

class Unconditional : public io::TestFolder {};

DDPMPipeline small() {
  models::UNet2DConfig c;
  c.sample_size = int64_t(8);
  c.block_out_channels = {4, 8};
  c.down_block_types = {"DownBlock2D", "AttnDownBlock2D"};
  c.up_block_types = {"AttnUpBlock2D", "UpBlock2D"};
  c.layers_per_block = 1;
  c.norm_num_groups = 4;
  DDPMPipeline pipe;
  auto unet = std::make_shared<models::UNet2DModel>(c);
  unet->eval();
  pipe.unet = denoiser(unet);
  pipe.scheduler = make_scheduler("DDPMScheduler", io::Object::container(io::Object::Dict));
  return pipe;
}

UnconditionalOptions two_steps() {
  UnconditionalOptions o;
  o.batch_size = 2;
  o.num_inference_steps = 2;
  o.generator = {make_generator()};
  o.generator[0]->manual_seed(1);
  return o;
}

TEST_F(Unconditional, PicturesAndFramesOfBytes) {
  const DDPMPipeline pipe = small();
  const Tensor images = pipe(two_steps()).images;
  EXPECT_EQ(images.shape(), (Shape{2, 3, 8, 8}));
  auto run = pipe.start(two_steps());
  while (!run->done()) run->step();
  const PipelineFrames frames = run->finish_frames();
  ASSERT_EQ(frames.clips.size(), 2u);
  ASSERT_EQ(frames.clips[1].size(), 1u);
  EXPECT_EQ(frames.clips[1][0].to_vector(), VaeImageProcessor::frames(images).select(0, 1).to_vector());
}

TEST_F(Unconditional, DdimMakesItsSamplerOfAnother) {
  const DDPMPipeline ddpm = small();
  const DDIMPipeline ddim = from_pipe<DDIMPipeline>(ddpm);
  EXPECT_STREQ(ddim.scheduler->name(), "DDIMScheduler");
  EXPECT_EQ(ddim.unet, ddpm.unet);
  save_pipeline(ddpm, path("pipe"));
  EXPECT_STREQ(DDIMPipeline::from_pretrained(path("pipe")).scheduler->name(), "DDIMScheduler");
  EXPECT_STREQ(DDPMPipeline::from_pretrained(path("pipe")).scheduler->name(), "DDPMScheduler");
}

TEST_F(Unconditional, ASamplerOfPythonIsPythons) {
  save_pipeline(small(), path("pipe"));
  PipelineIndex index = read_pipeline_index(path("pipe"));
  for (auto& row : index.rows)
    if (row.name == "scheduler") row.library = "my_samplers", row.class_name = "Halving";
  write_pipeline_index(index, path("pipe"));
  EXPECT_EQ(plan_pipeline(path("pipe")).components.back().library, "my_samplers");
  SF_EXPECT_ERROR(NotSupported, "its scheduler is my_samplers.Halving, a class of Python", load_pipeline(path("pipe")));
}

TEST_F(Unconditional, FlowMatchingNeedsAModelThatPredictsFlow) {
  auto config = [](const char* prediction) {
    return io::Object::container(io::Object::Dict, {"prediction_type", prediction});
  };
  DDPMPipeline pipe = small();
  pipe.scheduler = make_scheduler("FlowMatchEulerDiscreteScheduler", config("epsilon"));
  SF_EXPECT_ERROR(ValueError, "DDPMPipeline: FlowMatchEulerDiscreteScheduler is for models that predict flow",
                  pipe(two_steps()));
  pipe.scheduler = make_scheduler("FlowMatchEulerDiscreteScheduler", config("flow_prediction"));
  EXPECT_EQ(pipe(two_steps()).images.shape(), (Shape{2, 3, 8, 8}));
}

}  // namespace
}  // namespace sf::diffusion
