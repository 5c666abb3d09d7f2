#include "scaffolding/train/run_log.h"

#include <chrono>

namespace sf::train {

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

RunLog::RunLog(const RunOptions& options, const RunState& state, std::optional<int64_t> last_step, Progress progress)
    : logging_steps_(options.logging_steps), last_step_(last_step), since_(now()) {
  if (!options.output_dir.empty()) {
    metrics_.emplace(options.output_dir + "/metrics.jsonl", state.step);
    if (options.tensorboard) events_ = std::make_shared<EventFile>(options.output_dir + "/logs", state.step);
  }
  if (progress != Progress::Quiet)
    progress_.emplace(ProgressOptions{.terminal = progress == Progress::Terminal, .last_step = last_step}, state.step,
                      since_);
}

std::string RunLog::record(const StepRecord& r, RunState& state) {
  state.samples += r.samples;
  state.loss_sum += r.loss;
  ++state.loss_steps;
  state.note(r.evaluation);
  samples_ += r.samples;
  double time = now();
  if (state.step % logging_steps_ == 0 || !r.evaluation.empty() || state.step == last_step_) {
    MetricsFile::Values values{{"loss", state.loss_sum / double(state.loss_steps)},
                               {"lr", r.lr},
                               {"grad_norm", r.grad_norm},
                               {"samples_per_second", double(samples_) / std::max(time - since_, 1e-9)}};
    std::map<std::string, double> scalars{{"train/epoch", double(state.epoch)}};
    for (auto& [name, v] : values) scalars["train/" + name] = v;
    for (auto& [name, v] : r.evaluation) {
      values.emplace_back("eval/" + name, v);
      scalars["eval/" + name] = v;
    }
    if (metrics_) metrics_->write(state.step, state.epoch, values);
    if (events_) events_->add_scalars(scalars, state.step);
    state.loss_sum = 0;
    state.loss_steps = 0;
    samples_ = 0;
    since_ = time;
  }
  return progress_ ? progress_->step(state.step, r.loss, r.samples, time) : std::string();
}

void RunLog::sync() {
  if (metrics_) metrics_->sync();
  if (events_) events_->sync();
}

std::string RunLog::finish() {
  sync();
  return progress_ ? progress_->finish() : std::string();
}

}  // namespace sf::train
