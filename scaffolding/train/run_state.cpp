#include "scaffolding/train/run_state.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "scaffolding/core/error.h"
#include "scaffolding/io/json.h"
#include "scaffolding/io/json_error.h"
#include "scaffolding/train/appending_file.h"

namespace sf::train {

using Json = nlohmann::ordered_json;
static constexpr int kFormat = 1;

void RunState::note(const std::map<std::string, double>& evaluation) {
  for (auto& [name, v] : evaluation) {
    if (!std::isfinite(v)) continue;
    auto [found, first] = best.try_emplace(name, Extremes{v, v, step, step});
    Extremes& e = found->second;
    if (v < e.lowest) e.lowest = v, e.lowest_step = step;
    if (v > e.highest) e.highest = v, e.highest_step = step;
  }
}

template <class T> static Json or_null(const std::optional<T>& v) { return v ? Json(*v) : Json(); }

std::string run_state_text(const RunState& s, const RunOptions& o) {
  Json best = Json::object();
  for (auto& [name, e] : s.best)
    best[name] = {
        {"lowest", e.lowest}, {"lowest_step", e.lowest_step}, {"highest", e.highest}, {"highest_step", e.highest_step}};
  Json config = {{"output_dir", o.output_dir},
                 {"max_steps", or_null(o.max_steps)},
                 {"max_epochs", or_null(o.max_epochs)},
                 {"gradient_accumulation_steps", o.gradient_accumulation_steps},
                 {"max_grad_norm", or_null(o.max_grad_norm)},
                 {"mixed_precision", o.mixed_precision},
                 {"checkpointing_steps", or_null(o.checkpointing_steps)},
                 {"checkpoints_total_limit", or_null(o.checkpoints_total_limit)},
                 {"logging_steps", o.logging_steps},
                 {"eval_steps", or_null(o.eval_steps)},
                 {"tensorboard", o.tensorboard}};
  Json j = {{"format", kFormat},      {"step", s.step},         {"epoch", s.epoch},
            {"samples", s.samples},   {"loss_sum", s.loss_sum}, {"loss_steps", s.loss_steps},
            {"ema_step", s.ema_step}, {"best", best},           {"config", config}};
  return io::tolerant_json_text(j, 2) + "\n";
}

void save_run_state(const RunState& s, const RunOptions& o, const std::string& path) {
  AppendingFile(path).write(run_state_text(s, o));
}

RunState load_run_state(const std::string& path) {
  io::Bytes bytes = io::Bytes::read(path);
  return parse_run_state({bytes.chars(), size_t(bytes.size)}, path);
}

RunState parse_run_state(std::string_view text, const std::string& path) {
  RunState s;
  try {
    Json j = Json::parse(text);
    SF_CHECK(j.at("format") == kFormat, path, ": format must be ", kFormat, ", got ", io::json_text(j.at("format")));
    s.step = j.at("step");
    s.epoch = j.at("epoch");
    s.samples = j.at("samples");
    s.loss_sum = j.at("loss_sum");
    s.loss_steps = j.at("loss_steps");
    s.ema_step = j.at("ema_step");
    for (auto& [name, e] : j.at("best").items())
      s.best[name] = {e.at("lowest"), e.at("highest"), e.at("lowest_step"), e.at("highest_step")};
  } catch (const Json::exception& e) {
    fail(path, ": is no trainer_state.json: ", io::json_error(e));
  }
  SF_CHECK(s.step >= 0 && s.epoch >= 0 && s.samples >= 0 && s.loss_steps >= 0 && s.ema_step >= 0, path,
           ": counts must not be negative");
  return s;
}

}  // namespace sf::train
