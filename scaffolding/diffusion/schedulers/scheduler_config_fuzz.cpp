#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/diffusion/schedulers/scheduler.h"

// scheduler_config.json: its text, and schedulers with whatever fields it has.
SF_FUZZ_TARGET(scheduler_config) {
  using namespace sf;
  io::Object dict = io::parse_config({reinterpret_cast<const char*>(data), size}, "fuzz");
  std::string text = io::format_config(dict);
  SF_CHECK_AS(RuntimeError, io::format_config(io::parse_config(text, "again")) == text,
              "internal: the text changes when it is read again");
  auto* name = dict.find("_class_name");
  if (!name || !name->is(io::Object::String)) return;
  diffusion::TimestepOptions options;
  options.num_inference_steps = 4;
  diffusion::make_scheduler(name->text(), dict)->set_timesteps(options);
}
