// `scaffolding upscale`: pictures enlarged by a network of ESRGAN's or Real-ESRGAN's kind.
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/files.h"
#include "apps/cli/model_names.h"
#include "apps/cli/new_file.h"
#include "apps/cli/output_file.h"
#include "apps/cli/terminal.h"
#include "scaffolding/core/error.h"
#include "scaffolding/data/resize.h"
#include "scaffolding/diffusion/pipelines/run.h"
#include "scaffolding/io/json.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/models/upscalers/upscale.h"
#include "scaffolding/models/upscalers/upscaler_file.h"

namespace sf::cli {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

struct UpscaleOptions {
  std::vector<std::string> pictures;
  std::string model, output, dtype = "float32", device = "cpu";
  std::optional<int64_t> scale;
  int64_t tile = models::UpscaleOptions().tile, overlap = models::UpscaleOptions().overlap;
  bool force = false, quiet = false, json = false;
};

// Where the picture goes: --output, with {name} filled in; without it "cat_x4.png" beside "cat.jpg".
std::string output_of(const UpscaleOptions& o, const std::string& picture, int64_t scale) {
  const fs::path path(picture);
  const std::string name = path.stem().string();
  if (o.output.empty()) return (path.parent_path() / (name + "_x" + std::to_string(scale) + ".png")).string();
  std::string out = o.output;
  for (auto& [key, value] : {std::pair<std::string, std::string>{"{name}", name}, {"{scale}", std::to_string(scale)}})
    for (size_t at = 0; (at = out.find(key, at)) != out.npos; at += value.size()) out.replace(at, key.size(), value);
  return out;
}

// What a picture says of itself goes along.
io::ImageText text_of(const std::string& path) { return io::image_info(path).text; }

struct Job {
  std::string from, to;
};

// All that can be known before the first tile: pictures are there, and where they go can be written, each elsewhere.
std::vector<Job> jobs_of(const UpscaleOptions& o, int64_t scale) {
  std::vector<Job> jobs;
  for (auto& picture : o.pictures) {
    SF_CHECK(fs::is_regular_file(picture), "upscale: there is no file '", picture, "'");
    SF_CHECK(is_picture(picture), "upscale: '", picture, "' is no PNG, JPEG or WebP");
    jobs.push_back({picture, output_of(o, picture, scale)});
    check_output("--output", jobs.back().to, ".png .jpg .jpeg .webp");
    std::error_code error;
    SF_CHECK(!fs::equivalent(picture, jobs.back().to, error), "--output: '", picture,
             "' is the picture itself; name another file");
    for (size_t i = 0; i + 1 < jobs.size(); ++i)
      SF_CHECK(jobs[i].to != jobs.back().to, "--output: '", jobs.back().to, "' is where both '", jobs[i].from,
               "' and '", picture, "' would go; --output \"{name}_large.png\" tells them apart");
  }
  return jobs;
}

void upscale(UpscaleOptions& o) {
  check_template("--output", o.output, {"name", "scale"});
  SF_CHECK(!o.model.empty(),
           "--model: name a file of ESRGAN or Real-ESRGAN (.pth or .safetensors), such as "
           "RealESRGAN_x4plus.pth");
  o.model = located_model("--model", o.model, io::ModelUse::Upscaler);
  models::LoadModelOptions load;
  load.dtype = dtype_of("--dtype", o.dtype);
  load.device = Device(o.device);
  const std::unique_ptr<models::Model> model = models::load_upscaler(o.model, load);
  const int64_t factor = models::upscaling_model(*model).upscale_factor(), scale = o.scale.value_or(factor);
  const std::vector<Job> jobs = jobs_of(o, scale);
  SamplingWatch watch(o.quiet || o.json, int64_t(jobs.size()), "picture");
  for (size_t i = 0; i < jobs.size(); ++i) {
    const auto& [from, to] = jobs[i];
    const Tensor picture = io::read_image(from);
    const auto step = watch.progress(int64_t(i), 1);
    models::UpscaleOptions options{o.tile, o.overlap, [&](int64_t done, int64_t tiles) {
                                     step(done, tiles);
                                     if (watch.stop().stop_requested()) throw diffusion::Stopped("upscale: stopped");
                                   }};
    Tensor large = models::upscale_picture(*model, picture, options);
    const int64_t height = picture.size(1) * scale, width = picture.size(2) * scale;
    if (scale != factor) large = data::resize(large, height, width, data::Filter::Lanczos);
    if (large.size(0) % 2 == 0 && to.ends_with("g") && !to.ends_with(".png"))  // JPEG has no transparency
      large = io::convert_image(large, large.size(0) == 2 ? io::ImageMode::L : io::ImageMode::RGB);
    io::ImageWriteOptions write{.quality = 95};
    if (to.ends_with(".png")) write.text = text_of(from);
    const std::string path =
        write_new(to, o.force, [&](const std::string& file) { io::write_image(file, large, write); });
    watch.bar.clear();
    if (o.json)
      std::cout << io::json_text(ordered_json{{"path", path},
                                              {"from", from},
                                              {"width", width},
                                              {"height", height},
                                              {"scale", scale},
                                              {"model", o.model}})
                << std::endl;
    else std::cout << path << std::endl;
  }
  watch.bar.finish();
}

}  // namespace

void add_upscale(CLI::App& program) {
  auto* command = program.add_subcommand("upscale", "Enlarge pictures by a file of ESRGAN or Real-ESRGAN");
  auto o = std::make_shared<UpscaleOptions>();
  command->add_option("pictures", o->pictures, "PNG, JPEG or WebP")->required();
  command->add_option("-m,--model", o->model,
                      "RRDBNet or SRVGGNetCompact: .pth, .safetensors, a folder that was saved here, or a name as "
                      "'scaffolding models --kind upscaler' lists it");
  command->add_option(
      "-o,--output", o->output,
      "Where it goes: .png, .jpg or .webp, {name} and {scale} filled in; without it {name}_x{scale}.png "
      "beside the picture");
  command->add_option("--scale", o->scale, "How much larger; another one than the model's is resized to")
      ->check(CLI::Range(1, 64));
  command
      ->add_option("--tile", o->tile,
                   "Pixels of the picture that are computed at once, on a side; 0: all. Memory "
                   "follows from it")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  command->add_option("--tile-overlap", o->overlap, "Pixels around a tile that it sees besides")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  command->add_option("--dtype", o->dtype, "float32, bfloat16 or float16")->capture_default_str();
  command->add_option("--device", o->device, "Where the network runs: cpu, cuda or cuda:1")->capture_default_str();
  command->add_flag("--force", o->force, "Replaces what is there; without it the name gets a number");
  command->add_flag("-q,--quiet", o->quiet, "No progress");
  command->add_flag("--json", o->json, "For programs: a line of JSON for each picture on standard output");
  command->footer(R"(Examples:
  scaffolding upscale photo.jpg --model RealESRGAN_x4plus.pth
  scaffolding upscale one.png two.png -m 4x-UltraSharp.safetensors -o "large/{name}.webp"
  scaffolding upscale icon.png -m realesr-general-x4v3.pth --scale 2 --tile 128)");
  command->callback([o] { upscale(*o); });
}

}  // namespace sf::cli
