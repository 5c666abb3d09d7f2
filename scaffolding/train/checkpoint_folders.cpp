#include "scaffolding/train/checkpoint_folders.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "scaffolding/core/error.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/json.h"

namespace sf::train {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

static constexpr const char* kManifest = "manifest.json";
static constexpr std::string_view kPrefix = "checkpoint-";

static void check(const std::error_code& error, const std::string& path, const char* what) {
  SF_CHECK_AS(RuntimeError, !error, path, ": ", what, ": ", error.message());
}

static void sync_path(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  SF_CHECK_AS(RuntimeError, fd >= 0, path, ": cannot open: ", std::strerror(errno));
  int failed = fsync(fd) != 0 ? errno : 0;
  close(fd);
  // Some file systems cannot sync a folder.
  SF_CHECK_AS(RuntimeError, !failed || failed == EINVAL, path, ": cannot sync: ", std::strerror(failed));
}

static uint32_t crc_of(const io::Bytes& file) {
  return uint32_t(crc32_z(0, reinterpret_cast<const unsigned char*>(file.chars()), size_t(file.size)));
}

// The step of "checkpoint-<step>", or -1.
static int64_t step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return -1;
  int64_t step = -1;
  auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() && step >= 0 ? step : -1;
}

static std::vector<fs::directory_entry> entries(const std::string& folder) {
  std::error_code error;
  std::vector<fs::directory_entry> out;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) out.push_back(*it);
  check(error, folder, "cannot read the folder");
  return out;
}

CheckpointFolders::CheckpointFolders(const std::string& output_dir, std::optional<int64_t> total_limit)
    : output_dir_(output_dir), total_limit_(total_limit) {
  std::error_code error;
  fs::create_directories(output_dir, error);
  SF_CHECK_AS(RuntimeError, !error && fs::is_directory(output_dir, error), "Trainer: output_dir must be a folder, and ",
              output_dir, " cannot be made: ", error ? error.message() : "there is a file of that name");
  SF_CHECK_AS(RuntimeError, access(output_dir.c_str(), W_OK | X_OK) == 0, "Trainer: output_dir must be writable, and ",
              output_dir, " is not: ", std::strerror(errno));
}

std::string CheckpointFolders::path(int64_t step) const {
  return output_dir_ + "/" + std::string(kPrefix) + std::to_string(step);
}
std::string CheckpointFolders::temporary(int64_t step) const { return path(step) + ".tmp"; }

std::vector<int64_t> CheckpointFolders::steps() const {
  std::vector<int64_t> out;
  for (auto& e : entries(output_dir_))
    if (int64_t step = step_of(e.path().filename().string()); step >= 0 && e.is_directory()) out.push_back(step);
  std::sort(out.begin(), out.end());
  return out;
}

void CheckpointFolders::clean() const {
  for (auto& e : entries(output_dir_)) {
    std::string name = e.path().filename().string();
    if (!name.ends_with(".tmp") || step_of(name.substr(0, name.size() - 4)) < 0) continue;
    std::error_code error;
    fs::remove_all(e.path(), error);
    check(error, e.path().string(), "cannot remove");
  }
}

std::string CheckpointFolders::begin(int64_t step) {
  std::string folder = temporary(step);
  std::error_code error;
  fs::remove_all(folder, error);
  check(error, folder, "cannot remove");
  fs::create_directory(folder, error);
  check(error, folder, "cannot make the folder");
  return folder;
}

std::string CheckpointFolders::commit(int64_t step) {
  std::string folder = temporary(step), target = path(step);
  Json files = Json::object();
  std::vector<std::string> names;
  for (auto& e : entries(folder)) names.push_back(e.path().filename().string());
  std::sort(names.begin(), names.end());
  for (auto& name : names) {
    sync_path(folder + "/" + name);
    io::Bytes file = io::Bytes::map(folder + "/" + name);
    files[name] = {{"size", file.size}, {"crc32", crc_of(file)}};
  }
  std::string text = io::json_text(Json{{"files", files}}, 2) + "\n";
  io::ReplacingFile manifest(folder + "/" + kManifest);
  manifest.write(text.data(), text.size());
  manifest.commit();  // syncs the folder too
  std::error_code error;
  if (fs::exists(target, error)) fs::remove_all(target, error);  // damaged: find() passed it over
  check(error, target, "cannot remove");
  SF_CHECK_AS(RuntimeError, std::rename(folder.c_str(), target.c_str()) == 0, target,
              ": cannot rename: ", std::strerror(errno));
  sync_path(output_dir_);
  keep_to_limit(step);
  return target;
}

void CheckpointFolders::keep_to_limit(int64_t step) const {
  if (!total_limit_) return;
  std::error_code error;
  std::vector<int64_t> older = steps();
  std::erase_if(older, [&](int64_t s) { return s >= step; });
  for (size_t i = 0; i + size_t(*total_limit_) <= older.size(); ++i) {
    // Loses its name first: what is removed by halves must not look like a checkpoint.
    std::string old = path(older[i]), gone = temporary(older[i]);
    fs::rename(old, gone, error);
    check(error, old, "cannot rename");
    fs::remove_all(gone, error);
    check(error, gone, "cannot remove");
  }
}

void CheckpointFolders::abandon(int64_t step) noexcept {
  std::error_code ignored;
  fs::remove_all(temporary(step), ignored);
}

std::string CheckpointFolders::failure(int64_t step, const std::string& reason) const {
  std::vector<int64_t> there = steps();
  return "Trainer: " + std::string(kPrefix) + std::to_string(step) + " could not be written: " + reason +
         (there.empty() ? "; there is no earlier one" : "; " + path(there.back()) + " is still there and whole");
}

std::optional<CheckpointFolders::Found> CheckpointFolders::find(const std::string& resume) const {
  std::vector<int64_t> there = steps();
  if (resume.empty()) {
    SF_CHECK(there.empty(), "Trainer: output_dir ", output_dir_, " holds ", kPrefix, there.back(),
             " already; pass resume=\"latest\" to go on from it, or choose another folder");
    return {};
  }
  if (resume != "latest") {
    std::error_code error;
    std::string folder = fs::exists(resume, error) ? resume : output_dir_ + "/" + resume;
    SF_CHECK(fs::is_directory(folder, error),
             "Trainer: resume must be \"latest\" or a checkpoint folder, and there is no ", resume);
    verify_checkpoint(folder);
    bool from_here = false;
    for (int64_t step : there) {
      if (!fs::equivalent(folder, path(step), error)) continue;
      from_here = true;
      SF_CHECK(step == there.back(), "Trainer: resume=", resume, " would leave ", path(there.back()),
               " of the abandoned run behind; remove what is newer, or choose another output_dir");
    }
    SF_CHECK(from_here || there.empty(), "Trainer: resume=", resume, " is of another run than the ", kPrefix,
             there.back(), " that output_dir ", output_dir_, " holds already; choose another output_dir");
    return Found{folder, {}};
  }
  Found found;
  for (size_t i = there.size(); i-- > 0;) try {
      verify_checkpoint(path(there[i]));
      found.path = path(there[i]);
      return found;
    } catch (const Error& e) {
      found.damaged.push_back(e.what());
    }
  SF_CHECK(found.damaged.empty(), "Trainer: no checkpoint in ", output_dir_, " is whole; of the newest, ",
           found.damaged[0]);
  return {};
}

void verify_checkpoint(const std::string& folder) {
  std::string manifest = folder + "/" + kManifest;
  std::error_code error;
  SF_CHECK(fs::is_regular_file(manifest, error), manifest, ": is missing; the checkpoint is not whole");
  io::Bytes bytes = io::Bytes::read(manifest);
  Json j = Json::parse(bytes.chars(), bytes.chars() + bytes.size, nullptr, false);
  SF_CHECK(j.is_object() && j.contains("files") && j["files"].is_object(), manifest,
           ": is damaged; the checkpoint cannot be checked");
  for (auto& [name, facts] : j["files"].items()) {
    SF_CHECK(name.find('/') == std::string::npos && facts.is_object() &&
                 facts.value("size", Json()).is_number_unsigned() && facts.value("crc32", Json()).is_number_unsigned(),
             manifest, ": is damaged; the checkpoint cannot be checked");
    std::string path = folder + "/" + name;
    SF_CHECK(fs::is_regular_file(path, error), path, ": is missing from the checkpoint");
    io::Bytes file = io::Bytes::map(path);
    SF_CHECK(file.size == facts["size"].get<uint64_t>(), path, ": has ", file.size, " bytes, ",
             facts["size"].get<uint64_t>(), " were written");
    SF_CHECK(crc_of(file) == facts["crc32"].get<uint64_t>(), path,
             ": is damaged: its checksum is not the one that was written");
  }
}

}  // namespace sf::train
