// Our own API, /api/v1: training runs of the folders that --runs names: figures of each step, sample pictures and
// evaluations, as `scaffolding train` and the Trainer write them. Looked at anew at each request, since a run goes on.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "scaffolding/core/error.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/json.h"
#include "scaffolding/server/apis/context.h"

namespace sf::server {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostPictures = 500, kMostEvaluations = 20;         // of a run, the newest
constexpr int64_t kMostAtOnce = 1 << 20, kMostEvaluation = 1 << 18;  // bytes

struct RunFile {
  std::string name;  // in its run's folder, with '/'
  int64_t bytes = 0;
  double changed = 0;  // seconds since 1970
};

struct TrainingRun {
  std::string name;
  fs::path folder;
  std::vector<RunFile> metrics, pictures, evaluations;
};

// Those of a folder that pass, by name. What a link leads to elsewhere is no part of a run.
template <class F> void add_files(const fs::path& run, const std::string& in, std::vector<RunFile>& out, F passes) {
  std::error_code error;
  for (auto& entry : fs::directory_iterator(run / in, error)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file(error) || entry.is_symlink(error) || !passes(name)) continue;
    const auto age = fs::file_time_type::clock::now() - entry.last_write_time(error);
    out.push_back({in.empty() ? name : in + "/" + name, int64_t(entry.file_size(error)),
                   seconds_now() - std::chrono::duration<double>(age).count()});
  }
}

template <class T> void keep_newest(std::vector<T>& files, size_t most) {
  std::sort(files.begin(), files.end(), [](auto& a, auto& b) { return a.name < b.name; });
  if (files.size() <= most) return;
  std::stable_sort(files.begin(), files.end(), [](auto& a, auto& b) { return a.changed < b.changed; });
  files.erase(files.begin(), files.end() - long(most));
}

std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory(error)) out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

// metrics.jsonl in the folder is a run of one stage, in folders of it one of several.
std::optional<TrainingRun> run_in(const fs::path& folder) {
  TrainingRun run{.name = folder.filename().string(), .folder = folder};
  std::vector<std::string> stages = folders_in(folder);
  stages.insert(stages.begin(), "");
  for (auto& stage : stages) add_files(folder, stage, run.metrics, [](auto& n) { return n == "metrics.jsonl"; });
  if (run.metrics.empty()) return {};
  auto is_picture = [](const std::string& n) { return n.ends_with(".png") || n.ends_with(".webp"); };
  for (auto& stage : stages) {
    if (stage != "pipeline") add_files(folder, stage, run.pictures, is_picture);
    add_files(folder, stage.empty() ? "samples" : stage + "/samples", run.pictures, is_picture);
  }
  add_files(folder, "", run.evaluations, [](auto& n) { return n.starts_with("eval") && n.ends_with(".json"); });
  keep_newest(run.pictures, kMostPictures), keep_newest(run.evaluations, kMostEvaluations);
  return run;
}

std::vector<TrainingRun> all_runs(const Context& c) {
  std::vector<TrainingRun> out;
  auto add = [&](std::optional<TrainingRun> run) {
    if (!run) return;
    const std::string name = run->name;
    auto taken = [&] { return std::any_of(out.begin(), out.end(), [&](auto& o) { return o.name == run->name; }); };
    for (int i = 2; taken(); ++i) run->name = name + " (" + std::to_string(i) + ")";
    out.push_back(std::move(*run));
  };
  for (auto& given : c.runs) {
    std::error_code error;
    fs::path folder = fs::canonical(given, error);
    if (error) continue;
    if (auto run = run_in(folder)) add(std::move(run));
    else
      for (auto& name : folders_in(folder)) add(run_in(folder / name));
  }
  return out;
}

TrainingRun run_named(const Context& c, const std::string& name) {
  for (auto& run : all_runs(c))
    if (run.name == name) return run;
  throw ApiError(404, "there is no run '" + name.substr(0, 100) + "'", "not_found", "run");
}

// A file of the list: what a client writes is compared, never opened.
fs::path path_of(const TrainingRun& run, const std::vector<RunFile>& files, const std::string& name) {
  for (auto& f : files)
    if (f.name == name) return run.folder / f.name;
  throw ApiError(404, "the run has no file '" + name.substr(0, 200) + "'", "not_found", "name");
}

// Whole lines behind that byte, at most so many bytes of them.
json metrics_from(const fs::path& path, int64_t from) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const int64_t size = in ? int64_t(in.tellg()) : 0;
  json out{{"size", size}, {"again", from > size}};  // a run that began anew has a shorter file
  if (from > size) from = 0;
  std::string text(size_t(std::min(size - from, kMostAtOnce)), '\0');
  in.seekg(from);
  in.read(text.data(), std::streamsize(text.size()));
  text.resize(size_t(std::max<std::streamsize>(0, in.gcount())));
  const size_t end = text.rfind('\n');
  const bool endless = end == text.npos && int64_t(text.size()) == kMostAtOnce;  // no line of ours: left out
  text.resize(end == text.npos ? 0 : end + 1);
  json lines = json::array();
  for (size_t at = 0; at < text.size();) {
    const size_t stop = text.find('\n', at);
    json line = io::parse_json(std::string_view(text).substr(at, stop - at));
    at = stop + 1;
    if (!line.is_object() || !line.value("step", json()).is_number_integer()) continue;
    json figures = json::object();
    for (auto& [name, value] : line.items())
      if (value.is_number() || value.is_null()) figures[name] = value;
    lines.push_back(std::move(figures));
  }
  out["next"] = from + (endless ? kMostAtOnce : int64_t(text.size()));
  out["lines"] = std::move(lines);
  return out;
}

json run_json(const TrainingRun& run) {
  json out{{"name", run.name}, {"stages", json::array()}, {"pictures", json::array()}, {"evaluations", json::object()}};
  double changed = 0;
  for (auto& f : run.metrics) {
    out["stages"].push_back({{"name", f.name}, {"bytes", f.bytes}});
    changed = std::max(changed, f.changed);
  }
  for (auto& f : run.pictures) out["pictures"].push_back({{"name", f.name}, {"changed", f.changed}});
  for (auto& f : run.evaluations) {
    if (f.bytes > kMostEvaluation) continue;
    std::ifstream in(run.folder / f.name);
    json read = io::parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
    if (read.is_object()) out["evaluations"][f.name] = std::move(read);
  }
  out["changed"] = changed;
  return out;
}

}  // namespace

void add_run_routes(Router& router, Context& c) {
  using K = FieldKind;
  router.add("GET", "/api/v1/runs", "Training runs of the folders of --runs", [&c](Call&, const Answer& a) {
    json runs = json::array();
    for (auto& run : all_runs(c)) runs.push_back(run_json(run));
    a->respond(json_response({{"runs", runs}}));
  });
  router
      .add("GET", "/api/v1/runs/{run}/metrics", "Figures of a run's steps: the lines behind a byte of their file",
           [&c](Call& call, const Answer& a) {
             const TrainingRun run = run_named(c, call.path.at("run"));
             const fs::path path = path_of(run, run.metrics, call.query["name"].get<std::string>());
             a->respond(json_response(metrics_from(path, call.query.value("from", int64_t(0)))));
           })
      .asks({field("name", K::Text, "of a stage").at_most(1000).need(),
             field("from", K::Whole, "what 'next' was before").range(0, 9e15)});
  router
      .add("GET", "/api/v1/runs/{run}/picture", "A sample picture of a run",
           [&c](Call& call, const Answer& a) {
             const TrainingRun run = run_named(c, call.path.at("run"));
             const std::string name = call.query["name"].get<std::string>();
             const io::Bytes bytes = io::Bytes::read(path_of(run, run.pictures, name).string());
             a->respond({.body = {bytes.chars(), bytes.size},
                         .type = name.ends_with(".webp") ? "image/webp" : "image/png",
                         .headers = {{"Cache-Control", "no-cache"}}});
           })
      .asks({field("name", K::Text).at_most(1000).need()});
}

}  // namespace sf::server
