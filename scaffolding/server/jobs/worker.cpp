// The thread that computes: it takes jobs from the queue, begins their pictures, steps those that fit in one call of
// the denoiser, and decodes them. Between two steps anything may change. What is made goes on to saving.cpp.
#include <algorithm>
#include <chrono>
#include <mutex>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/core/stopping.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/server/jobs/live_jobs.h"
#include "scaffolding/server/unavailable.h"

namespace sf::server {

namespace {

constexpr double kPreviewShare = 0.02;  // of the time, for previews that nobody waits for

std::vector<diffusion::LoraTag> loras_of(const JobRequest& r) {
  std::vector<diffusion::LoraTag> loras = r.loras;
  for (auto& tag : diffusion::take_lora_tags(r.prompt).tags) loras.push_back(tag);
  return loras;
}

// By which jobs are put together before their runs are there to be compared.
std::string size_of(const JobRequest& r, const diffusion::DiffusionPipeline& pipeline) {
  const bool clip = diffusion::makes_clips(diffusion::pipeline_entry(pipeline.name()).its_task);
  if (!clip && !r.image.empty() && !(r.width && r.height)) return "the picture's";
  const auto size = pipeline.size(r.height, r.width);
  const auto frames = r.options.find("num_frames");
  return std::to_string(size.width) + "x" + std::to_string(size.height) +
         (frames == r.options.end() ? "" : "x" + frames->second);
}

}  // namespace

// A job whose turn it is, into what runs: where no other has to wait for it.
bool Jobs::may_join(const Group& g, const JobRecord& record) const {
  const JobRequest& r = record.request;
  if (g.alone || record.crashes > 0 || g.timing.empty() || record.priority != g.priority || r.model != g.model)
    return false;
  const Seat* first = g.first();
  size_t unbegun = 0;
  for (auto& a : g.jobs) unbegun += a.has_unbegun();
  if (!first || g.jobs.size() >= g.most || loras_of(r) != g.loras || size_of(r, *first->pipeline) != g.size)
    return false;
  return g.jobs.size() < best_at_a_time(g, unbegun);
}

// Of pictures like the group's first one, were those that have not begun and all that wait there. With the mutex.
size_t Jobs::best_at_a_time(const Group& g, size_t unbegun) const {
  const size_t there = std::min(g.most, g.seats() + unbegun + queue_.size());
  return times_.best(g.timing, std::vector<int64_t>(there, g.first()->run->rows()), seconds_now());
}

// In memory, or could not be read beside what runs: then its jobs say why. With the mutex.
bool Jobs::is_at_hand(const std::string& model) {
  return shelf_.is_loaded(model) || (loading_ && loading_->failed && loading_->model == model);
}

std::set<std::string> Jobs::models_in_use() const {
  std::set<std::string> names;
  for (auto& g : groups_) names.insert(g.model);
  return names;
}

// Reads a model on a thread of its own, where none is read yet and it has room beside those that are in use; now: with
// room or without.
void Jobs::load_beside(const std::string& model, bool now) {
  {
    std::lock_guard lock(mutex_);
    if (shelf_.is_loaded(model) || (loading_ && (!loading_->failed || loading_->model == model))) return;
  }
  try {
    if (!shelf_.make_room_for(model, models_in_use()) && !now) return;
  } catch (const std::exception&) {
    // it was taken out of the folders: reading it says so
  }
  loading_ = std::make_unique<Loading>();
  Loading& l = *loading_;
  l.model = model, l.began = StepClock::now();
  l.thread = std::async(std::launch::async, [this, &l] {
    std::shared_ptr<diffusion::DiffusionPipeline> made;
    try {
      made = shelf_.read(l.model);
    } catch (const std::exception&) {
      // the job that wants it reads it again, and says why it cannot
    }
    std::lock_guard lock(mutex_);
    l.pipeline = std::move(made), l.failed = !l.pipeline, l.is_over = true;
    has_news_ = true;
    wake_.notify_all();
  });
}

void Jobs::take_loaded() {
  {
    std::lock_guard lock(mutex_);
    if (!loading_ || !loading_->is_over || loading_->failed) return;
  }
  shelf_.put(loading_->model, std::move(loading_->pipeline));
  log_.write("model loaded", {{"model", loading_->model}, {"seconds", StepClock::now() - loading_->began}});
  loading_.reset();
}

void Jobs::begin(LivePointer job) {
  JobRecord record;
  {
    std::lock_guard lock(mutex_);
    job->record.state = JobState::Running;
    job->record.started = seconds_now();
    record = job->record;
    ++running_;
    queue_.begin_serving(record.client);
    tell(*job, "started", {{"model", record.request.model}});
  }
  Group& g = groups_.back();
  g.jobs.push_back({.job = job, .seats = {}});
  if (sharing_) return;  // it was claimed before
  try {
    history_.claim(record);
  } catch (const Unavailable& e) {  // after a crash it is one that waited
    log_.write("history", {{"job", record.id}, {"error", e.what()}});
  } catch (const std::exception& e) {
    end(g, g.jobs.back(), JobState::Failed, e.what());
  }
}

Jobs::Active* Jobs::next_to_begin(Group& g, size_t seats) {
  Active* next = nullptr;
  const Seat* first = g.first();
  size_t unbegun = 0;
  for (auto& a : g.jobs) {
    const JobRecord& record = a.job->record;
    {
      std::lock_guard lock(mutex_);
      while (std::any_of(record.pictures.begin(), record.pictures.end(), [&](auto& p) { return p.place == a.next; }))
        ++a.next;
    }
    if (!a.has_unbegun()) continue;
    unbegun += size_t(record.request.count - a.next);
    if (!next || a.seats.size() < next->seats.size()) next = &a;
  }
  if (!next || !first) return next;
  if (seats >= g.most || g.alone) return nullptr;
  std::lock_guard lock(mutex_);
  return seats < best_at_a_time(g, unbegun) ? next : nullptr;
}

void Jobs::begin_picture(Group& g, Active& a) {
  step_clock_.broke();
  const JobRequest& r = a.job->record.request;
  Seat seat{.place = a.next, .pipeline = nullptr, .run = nullptr};
  for (;;) {
    try {
      std::vector<std::string> controlnets;
      for (auto& net : r.controls)
        if (!net.model.empty()) controlnets.push_back(net.model);
      seat.pipeline = controlnets.empty()
                          ? shelf_.load(r.model, r.task, r.vae, models_in_use())
                          : shelf_.load_controlled(r.model, r.task, r.vae, controlnets, models_in_use());
      shelf_.use_loras(r.model, g.loras);
      seat.run = std::make_unique<PictureRun>(*seat.pipeline, r, seat.place, history_, samplers_,
                                              shelf_.encoded_prompts(r.model));
      break;
    } catch (const OutOfMemory&) {
      seat.run.reset(), seat.pipeline.reset();
      if (shelf_.unload_oldest(models_in_use())) continue;
      if (const size_t seats = g.seats()) {
        set_most(g, seats);  // it begins when one of the others is done
        return;
      }
      throw;
    }
  }
  ++a.next;
  learn_colours(a, seat);
  if (g.timing.empty()) {
    g.size = size_of(r, *seat.pipeline);
    g.timing = g.model + "\n";
    for (auto& l : g.loras) g.timing += diffusion::text_of(l);
    for (int64_t n : seat.run->latents().shape()) g.timing += " " + std::to_string(n);
  }
  a.seats.push_back(std::move(seat));
  std::lock_guard lock(mutex_);
  if (a.seats.size() > 1) return;
  a.job->place = a.seats.front().place, a.job->step = 0, a.job->steps = a.seats.front().run->steps();
}

// Memory did not suffice for more at a time.
void Jobs::set_most(Group& g, size_t pictures) {
  g.most = pictures;
  log_.write("out of memory", {{"model", g.model}, {"at_a_time", pictures}});
}

// Those that fit the first one, as many of them as is best.
void Jobs::step(Group& g) {
  if (shelf_.is_loaded(g.model)) shelf_.use_loras(g.model, g.loras);
  struct Taking {
    Active* active;
    Seat* seat;
    diffusion::Run* run;
  };
  std::vector<Taking> taking;
  std::vector<int64_t> rows;
  for (auto a = g.jobs.begin(); a != g.jobs.end();) {
    Active& active = *a++;
    try {
      for (auto& seat : active.seats) {
        taking.push_back({&active, &seat, &seat.run->next_run()});
        if (taking.size() > 1 && !diffusion::SharedSteps::fit(*taking[0].run, *taking.back().run)) taking.pop_back();
      }
    } catch (const std::exception& e) {
      std::erase_if(taking, [&](auto& t) { return t.active == &active; });
      end(g, active, JobState::Failed, e.what());
    }
  }
  if (taking.empty()) return;
  for (auto& t : taking) rows.push_back(t.run->rows());
  taking.resize(std::min(g.most, times_.best(g.timing, rows, seconds_now())));
  std::vector<diffusion::Run*> runs;
  int64_t sum = 0;
  for (auto& t : taking) runs.push_back(t.run), sum += t.run->rows();
  const double begin = StepClock::now();
  std::vector<std::exception_ptr> errors;
  try {
    std::optional<StopWhen> stop;  // between the denoiser's blocks; a GPU's are queued long before they run
    if (runs[0]->latents.device().is_cpu())
      stop.emplace(
          [&] { return std::all_of(taking.begin(), taking.end(), [&](auto& t) { return is_unwanted(*t.active); }); });
    errors = g.shared.step(runs);
  } catch (const Stopped&) {
    return;  // drop_ended says what becomes of them
  } catch (const OutOfMemory&) {
    if (shelf_.unload_oldest(models_in_use())) return;  // and the step is taken again
    if (runs.size() == 1) errors = {std::current_exception()};
    else set_most(g, runs.size() / 2);
  } catch (const std::exception&) {
    if (runs.size() == 1) errors = {std::current_exception()};
    else
      for (auto* run : runs) try {  // which of them it was
          run->step();
          errors.push_back(nullptr);
        } catch (const std::exception&) {
          errors.push_back(std::current_exception());
        }
  }
  if (errors.empty()) return;
  const double timed = step_clock_.stepped(runs[0]->latents.device(), g.timing, sum, begin);
  if (timed >= 0 && std::none_of(errors.begin(), errors.end(), [](auto& e) { return bool(e); }))
    times_.measured(g.timing, sum, timed, seconds_now());
  const double known = timed >= 0 ? timed : times_.seconds(g.timing, sum, seconds_now());
  const double seconds = known > 0 ? known : StepClock::now() - begin;
  metrics_.count_step(seconds, runs.size());
  std::vector<std::pair<Active*, std::string>> failed;
  for (size_t i = 0; i < taking.size(); ++i) {
    // The same for the same work, whoever it was called with.
    const double alone = times_.seconds(g.timing, rows[i], seconds_now());
    taking[i].active->seconds += alone > 0 ? alone : seconds / double(taking.size());
    try {
      if (errors[i]) std::rethrow_exception(errors[i]);
      told_step(*taking[i].active, *taking[i].seat, seconds, taking.size());
    } catch (const std::exception& e) {
      failed.emplace_back(taking[i].active, e.what());
    }
  }
  for (size_t i = 0; i < failed.size(); ++i)
    if (std::none_of(failed.begin(), failed.begin() + long(i), [&](auto& f) { return f.first == failed[i].first; }))
      end(g, *failed[i].first, JobState::Failed, failed[i].second);
}

void Jobs::told_step(Active& a, Seat& seat, double seconds, size_t together) {
  auto preview = preview_of(a, seat);
  std::lock_guard lock(mutex_);
  Live& job = *a.job;
  const Seat& first = a.seats.front();
  job.decoded = 0;
  job.place = first.place, job.step = first.run->at(), job.steps = first.run->steps();
  job.made = double(job.record.pictures.size()) + double(job.unsaved);
  for (auto& s : a.seats) job.made += double(s.run->at()) / double(std::max<int64_t>(1, s.run->steps()));
  seconds /= double(a.seats.size());  // its pictures go on together
  job.step_seconds = job.step_seconds > 0 ? 0.7 * job.step_seconds + 0.3 * seconds : seconds;
  if (preview && &seat == &first) job.preview = preview, job.preview_elsewhere = false;
  tell(job, "step",
       {{"picture", seat.place}, {"step", seat.run->at()}, {"steps", seat.run->steps()}, {"together", together}},
       preview);
}

// At the first step, at each where somebody waits for it, and else so often that what comes from the device costs a
// small share of the time.
PreviewPointer Jobs::preview_of(const Active& a, const Seat& seat) {
  if (!settings_.previews) return nullptr;
  const auto at = colours_.find(a.job->record.request.model);
  if (at == colours_.end()) return nullptr;
  const double begin = StepClock::now();
  if (begin - previewed_ < preview_took_ / kPreviewShare) {
    std::lock_guard lock(mutex_);
    if (a.job->preview && !a.job->wants_previews) return nullptr;
  }
  const Tensor still = seat.run->still();
  auto map = still.ndim() == 4 ? at->second->map(still.size(1)) : nullptr;
  if (!map) return nullptr;
  auto preview = std::make_shared<const Preview>(std::move(map), still.cpu());
  previewed_ = StepClock::now(), preview_took_ = previewed_ - begin;
  return preview;
}

// What this autoencoder makes of latents: of coarse noise before the first picture, of pictures from then on.
void Jobs::learn_colours(const Active& a, const Seat& seat) {
  auto& colours = colours_[a.job->record.request.model];
  if (colours || !settings_.previews) return;
  colours = std::make_shared<LatentColours>();
  autograd::NoGrad no_grad;
  const Tensor like = seat.run->still();
  const bool clip = seat.run->is_clip();
  if (like.ndim() != 4 || (clip && seat.run->latents().size(2) != like.size(1))) return;
  auto generator = make_generator();
  generator->manual_seed(0);
  const Tensor noise = diffusion::randn_tensor({1, like.size(1), 4, 4}, {generator});
  const int64_t c = like.size(1);
  const Tensor latents = noise.reshape({1, c, 4, 1, 4, 1}).expand({1, c, 4, 2, 4, 2}).reshape({1, c, 8, 8});
  const Tensor given = latents.to(like.dtype()).to(like.device());
  Tensor values = seat.pipeline->decoded(clip ? given.unsqueeze(1) : given);
  if (clip && values.ndim() == 5) values = values.select(2, 0);
  if (values.ndim() != 4) return;
  const Tensor images = clamp(values.to(kFloat32) * 0.5 + 0.5, 0.0, 1.0);
  colours->learn(latents, diffusion::VaeImageProcessor::frames(images).select(0, 0));
}

void Jobs::finish_picture(Group& g, Active& a, std::list<Seat>::iterator seat) {
  step_clock_.broke();
  const JobRecord& record = a.job->record;
  PictureRun::Made made = [&] {
    const StopWhen stop([&] { return is_unwanted(a); });
    return seat->run->finish(shelf_.weights(), history_.scratch_path(record, seat->place), [&](double done) {
      std::lock_guard lock(mutex_);
      if (!seat->run->is_clip()) return;
      a.job->decoded = done;
      tell(*a.job, "decode", {{"picture", seat->place}, {"done", done}});
    });
  }();
  if (settings_.previews) colours_[record.request.model]->learn(made.latents, made.decoded);
  const Picture picture{.place = seat->place,
                        .seed = record.request.seed + seat->place,
                        .width = made.width,
                        .height = made.height,
                        .frames = made.frames};
  a.seats.erase(seat);
  SavingItem item{.job = a.job, .file = std::move(made.file), .picture = picture, .suffix = made.suffix};
  if (!a.seats.empty() || a.has_unbegun()) return save(std::move(item));
  item.state = JobState::Done;
  leave(g, a, std::move(item));
}

// One thing of the group: a picture finished, begun, or a step of some.
void Jobs::turn(Group& g) {
  for (auto& a : g.jobs)
    if (a.seats.empty() && !a.has_unbegun()) return end(g, a, JobState::Done, "");
  for (auto& a : g.jobs)
    for (auto seat = a.seats.begin(); seat != a.seats.end(); ++seat) {
      if (!seat->run->done()) continue;
      try {
        finish_picture(g, a, seat);
      } catch (const Stopped&) {
        return;  // whoever did not want it any more says what became of it
      } catch (const std::exception& e) {
        return end(g, a, JobState::Failed, e.what());
      }
      return;
    }
  if (Active* a = next_to_begin(g, g.seats())) {
    try {
      const StopWhen stop([&] { return is_unwanted(*a); });
      begin_picture(g, *a);
    } catch (const Stopped&) {
    } catch (const Unavailable&) {
      pause();
    } catch (const std::exception& e) {
      end(g, *a, JobState::Failed, e.what());
    }
    return;
  }
  step(g);
}

void Jobs::end(Group& g, Active& a, JobState state, const std::string& error) {
  leave(g, a, {.job = a.job, .state = state, .error = error});
}

// The job's end is saved beside what is computed next.
void Jobs::leave(Group& g, Active& a, SavingItem item) {
  {
    std::lock_guard lock(mutex_);
    queue_.count_served(a.job->record.client, a.seconds, seconds_now());
    a.job->record.seconds = a.seconds;
  }
  g.jobs.remove_if([&](const Active& other) { return &other == &a; });
  save(std::move(item));
}

// Another server goes on with it.
void Jobs::lose(Group& g, Active& a) {
  const LivePointer job = a.job;
  g.jobs.remove_if([&](const Active& other) { return &other == &a; });
  log_.write("job lost", {{"job", job->record.id}});
  std::lock_guard lock(mutex_);
  queue_.count_served(job->record.client, 0, seconds_now());
  --running_;
  job->mine = job->lost = false, job->claimed_at = 0;
  poke_to_look();
}

void Jobs::fail_overdue(double now) {
  std::vector<LivePointer> overdue;
  {
    std::lock_guard lock(mutex_);
    for (auto& [id, job] : live_)
      if (job->record.state == JobState::Waiting && now - job->waiting_since > settings_.most_waiting &&
          queue_.remove(id))
        overdue.push_back(job);
  }
  for (auto& job : overdue) finish(job, JobState::Failed, "the job waited for longer than this server lets it");
}

// What it does is not asked for any more: between the tiles and chunks that an autoencoder decodes.
bool Jobs::is_unwanted(const Active& a) const {
  const double now = seconds_now();
  std::lock_guard lock(mutex_);
  return stop_now_ || (stopping_ && now > stop_at_) || a.job->cancelled || a.job->lost ||
         now - a.job->record.started > settings_.most_running;
}

// Of what runs and of what was overtaken: cancelled ones, those that took too long, and those that cannot be saved.
void Jobs::drop_ended(double now) {
  for (auto& g : groups_)
    for (auto at = g.jobs.begin(); at != g.jobs.end();) {
      Active& a = *at++;
      bool cancelled, lost, failed, skipped, interrupted, nothing;
      {
        std::lock_guard lock(mutex_);
        cancelled = a.job->cancelled, lost = a.job->lost, failed = !a.job->failure.empty();
        skipped = std::exchange(a.job->skipped, false), interrupted = a.job->interrupted;
        nothing = a.next == 0 && a.job->record.pictures.empty();
      }
      if (lost) lose(g, a);
      else if (failed) end(g, a, JobState::Failed, "");  // it says why
      else if (cancelled) end(g, a, JobState::Cancelled, "");
      else if (now - a.job->record.started > settings_.most_running)
        end(g, a, JobState::Failed, "the job ran for longer than this server lets it");
      else if (interrupted && nothing) end(g, a, JobState::Cancelled, "");
      else if (interrupted || skipped) {
        if (interrupted) a.next = a.job->record.request.count;
        for (auto& seat : a.seats) seat.run->skip();
      }
    }
  groups_.remove_if([](const Group& g) { return g.jobs.empty(); });
}

void Jobs::work() {
  double looked = 0;
  for (;;) {
    LivePointer next;
    std::string wanted;   // the model of the job that is the next
    std::string ordered;  // one that somebody wants in memory
    bool overtakes = false;
    {
      std::unique_lock lock(mutex_);
      auto may_load = [&] { return !loading_ || loading_->failed; };
      auto ready = [&] {
        return stop_now_ || stopping_ || (unload_ && groups_.empty()) || !groups_.empty() ||
               (!to_load_.empty() && may_load()) || (loading_ && loading_->is_over && !loading_->failed) ||
               (queue_.size() > 0 && (has_news_ || may_load()));
      };
      wake_.wait_for(lock, std::chrono::seconds(5), ready);
      has_news_ = false;
      const double now = seconds_now();
      if (unload_ && groups_.empty()) unload_ = false, shelf_.unload_all(), colours_.clear();
      if (stopping_ && (stop_now_ || groups_.empty() || now > stop_at_)) break;
      // The next job, where nothing runs, it is more urgent than what does, or it may go along.
      if (const auto best = stopping_ ? std::nullopt : queue_.best(now)) {
        const LivePointer job = live(best->id);
        const std::string& model = job->record.request.model;
        overtakes = groups_.empty() || best->priority > groups_.back().priority;
        wanted = model;
        if (overtakes ? is_at_hand(model) : may_join(groups_.back(), job->record)) queue_.remove(best->id), next = job;
        if (next) next->mine = true;
      }
      if (wanted.empty() && !unload_ && may_load()) ordered.swap(to_load_);
    }
    if (next && sharing_ && !claim(next)) next = nullptr, wanted.clear();
    take_loaded();
    if (!next && !wanted.empty()) load_beside(wanted, overtakes);
    else if (!ordered.empty()) load_beside(ordered, groups_.empty());
    if (next && overtakes) {
      if (loading_ && loading_->model == next->record.request.model) loading_.reset();  // it failed
      const JobRequest& r = next->record.request;
      groups_.push_back({.priority = next->record.priority,
                         .model = r.model,
                         .loras = loras_of(r),
                         .alone = next->record.crashes > 0,
                         .size = "",
                         .timing = "",
                         .jobs = {},
                         .shared = {},
                         .most = settings_.most_together});
    }
    const double now = seconds_now();
    if (now - looked > 1) looked = now, fail_overdue(now);
    if (next) begin(next);
    drop_ended(now);
    if (!groups_.empty()) turn(groups_.back());
    groups_.remove_if([](const Group& g) { return g.jobs.empty(); });
  }
  wait_for_saving();
  // What still runs waits for the next start: it was stopped, which is no crash.
  for (auto& g : groups_)
    for (auto& a : g.jobs) {
      JobRecord record;
      std::vector<std::function<void(const JobRecord&)>> waiters;
      {
        std::lock_guard lock(mutex_);
        a.job->record.state = JobState::Waiting, a.job->record.started = 0;
        record = a.job->record;
        waiters.swap(a.job->waiters);
      }
      try {
        history_.set_state(record);
      } catch (const std::exception& e) {
        log_.write("history", {{"job", record.id}, {"error", e.what()}});
      }
      for (auto& then : waiters) then(record);
    }
  groups_.clear();
  std::vector<std::pair<JobRecord, std::function<void(const JobRecord&)>>> left;
  {
    std::lock_guard lock(mutex_);
    if (sharing_) sharing_->outbox.push_back({.job = "", .name = "change", .text = {}, .preview = nullptr});
    running_ = 0;
    for (auto& [id, job] : live_)
      for (auto& then : job->waiters) left.emplace_back(job->record, std::move(then));
    for (auto& [id, job] : live_) job->waiters.clear(), job->subscribers.clear();
  }
  for (auto& [record, then] : left) then(record);  // still waiting: the client is told to come again
}

}  // namespace sf::server
