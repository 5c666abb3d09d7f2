// Pipelines saved over others: with a full disk, and killed at any moment.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "scaffolding/diffusion/pipelines/pipelines.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/test_pipeline.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/nn/state_dict.h"

namespace sf::diffusion {
namespace {

class SavingOver : public io::TestFolder {
 protected:
  // Every weight of it is `value`.
  static StableDiffusionPipeline pipeline(float value) {
    auto pipe = test::tiny();
    for (models::Model* model : {pipe.unet->model(), pipe.vae->model()})
      for (auto& [name, t] : nn::state_dict(*model)) t.fill_(value);
    return pipe;
  }
  // The value of all weights in the folder; none where it refuses to load. Two values are a failure of the test.
  std::optional<float> saved() const {
    std::optional<float> value;
    try {
      auto pipe = StableDiffusionPipeline::from_pretrained(path("model"));
      for (models::Model* model : {pipe.unet->model(), pipe.vae->model()})
        for (auto& [name, t] : nn::state_dict(*model)) {
          const float here = float(t.flatten()[0].item());
          EXPECT_EQ(value.value_or(here), here) << "old and new parts side by side: " << name;
          value = here;
        }
    } catch (const Error& e) {
      return {};
    }
    return value;
  }
  size_t files_of_all() const {
    size_t n = 0;
    for (auto& e : std::filesystem::recursive_directory_iterator(folder_)) n += e.is_regular_file();
    return n;
  }
};

TEST_F(SavingOver, AFullDiskLeavesTheOldModel) {
  save_pipeline(pipeline(1), path("model"));
  const size_t files = files_of_all();
  const auto size = [&](const char* part) {
    return std::filesystem::file_size(path("model") + "/" + part + "/diffusion_pytorch_model.safetensors");
  };
  const auto larger = std::max(size("unet"), size("vae")), smaller = std::min(size("unet"), size("vae"));
  ASSERT_GT(larger, smaller);
  auto next = pipeline(2);
  auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit limit, small;
  getrlimit(RLIMIT_FSIZE, &limit);
  small = limit;
  for (rlim_t most : {rlim_t(larger - 1), rlim_t(smaller - 1), rlim_t(100)}) {
    small.rlim_cur = most;
    setrlimit(RLIMIT_FSIZE, &small);
    std::string error = io::error_of<RuntimeError>([&] { save_pipeline(next, path("model")); });
    setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_NE(error.find("cannot write"), std::string::npos) << error;
    EXPECT_EQ(saved(), 1.0f) << most;
    EXPECT_EQ(files_of_all(), files) << most;
  }
  signal(SIGXFSZ, before);
  save_pipeline(next, path("model"));
  EXPECT_EQ(saved(), 2.0f);
}

TEST_F(SavingOver, KilledAtAnyMomentItIsTheOldOneTheNewOneOrRefusesToLoad) {
  using std::chrono::steady_clock;
  auto old = pipeline(1), next = pipeline(2);
  save_pipeline(old, path("model"));
  const auto begin = steady_clock::now();
  save_pipeline(old, path("model"));
  const auto takes = std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - begin).count();
  constexpr int kKills = 16;
  for (int i = 0; i < kKills; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      save_pipeline(next, path("model"));
      _exit(0);
    }
    usleep(useconds_t(takes * (i + 1) / (kKills * 3 / 4)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const auto value = saved();
    if (WIFEXITED(status)) {
      EXPECT_EQ(value, 2.0f);
    }
    save_pipeline(old, path("model"));
    EXPECT_EQ(saved(), 1.0f);
  }
}

TEST_F(SavingOver, WeightsOfAnotherFormatThatWouldBeFoundFirstGo) {
  save_pipeline(pipeline(1), path("model"));
  save_pipeline(pipeline(2), path("model"), {.safe_serialization = false});
  EXPECT_EQ(saved(), 2.0f);
  save_pipeline(pipeline(3), path("model"), {.max_shard_size = 4000});
  EXPECT_EQ(saved(), 3.0f);
  save_pipeline(pipeline(4), path("model"));
  EXPECT_EQ(saved(), 4.0f);
}

}  // namespace
}  // namespace sf::diffusion
