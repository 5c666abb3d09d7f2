#include "scaffolding/io/replacing_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>

#include "scaffolding/core/error.h"

namespace sf::io {

namespace fs = std::filesystem;

namespace {

thread_local ReplacingFolder* t_innermost = nullptr;

std::string absolute(const std::string& path) {
  std::string out = fs::absolute(path).lexically_normal().string();
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

// Names reach the disk with their folder. Some file systems cannot sync one; the files are whole anyway.
void sync_folder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

std::string folder_of(const std::string& path) {
  fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

void remove_empty_folders(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> inner;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (!it->is_symlink(error) && it->is_directory(error)) inner.push_back(it->path());
  for (auto& f : inner) remove_empty_folders(f);
  rmdir(folder.c_str());  // only where nothing is in it
}

}  // namespace

ReplacingFolder::ReplacingFolder(const std::string& folder, const std::string& index)
    : folder_(absolute(folder)), outer_(t_innermost) {
  indexes_.push_back((fs::path(folder_) / index).string());
  std::error_code ignored;
  was_there_ = fs::exists(folder_, ignored);
  t_innermost = this;
}

ReplacingFolder::~ReplacingFolder() {
  t_innermost = outer_;
  for (auto& change : changes_)
    if (!change.temporary.empty()) unlink(change.temporary.c_str());
  if (!committed_ && !was_there_) remove_empty_folders(folder_);
}

ReplacingFolder* ReplacingFolder::around(const std::string& path) {
  if (!t_innermost) return nullptr;
  const std::string full = absolute(path);
  const auto lies_in = [&](const std::string& folder) {
    return full.starts_with(folder) && (folder == "/" || full.size() == folder.size() || full[folder.size()] == '/');
  };
  ReplacingFolder* at = t_innermost;
  while (at && !lies_in(at->folder_)) at = at->outer_;
  return at;
}

void ReplacingFolder::add(const std::string& temporary, const std::string& path, const std::string& name) {
  changes_.push_back({temporary.empty() ? "" : absolute(temporary), absolute(path), absolute(name)});
}

void ReplacingFolder::remove(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(path, ignored))) return;
  if (ReplacingFolder* folder = around(path)) folder->add("", path, path);
  else fs::remove(path, ignored);
}

void ReplacingFolder::commit() {
  t_innermost = outer_;  // to ask for the one around this one
  ReplacingFolder* outer = around(folder_);
  t_innermost = this;
  if (!outer) swap();
  committed_ = true;
  t_innermost = outer_;  // what is written from now on is none of it
  if (!outer) return;
  outer->indexes_.insert(outer->indexes_.end(), indexes_.begin(), indexes_.end());
  outer->changes_.insert(outer->changes_.end(), changes_.begin(), changes_.end());
  changes_.clear();
}

void ReplacingFolder::swap() {
  std::error_code error;
  std::set<std::string> folders;
  for (auto& change : changes_) {
    SF_CHECK_AS(RuntimeError, !fs::is_directory(change.path, error), change.path,
                ": is a folder, and a file is to take its place; nothing was replaced");
    folders.insert(folder_of(change.path));
  }
  const auto is_index = [&](const Change& change) {
    return !change.temporary.empty() && std::find(indexes_.begin(), indexes_.end(), change.name) != indexes_.end();
  };
  // Without the outermost index no other is asked for, so that it goes first and comes last.
  const auto depth = [](const Change& change) { return std::count(change.name.begin(), change.name.end(), '/'); };
  const auto middle = std::stable_partition(changes_.begin(), changes_.end(), std::not_fn(is_index));
  std::stable_sort(middle, changes_.end(), [&](const Change& a, const Change& b) { return depth(a) > depth(b); });
  if (changes_.size() > 1)
    for (auto it = changes_.end(); it != middle;) {
      --it;
      const bool gone = unlink(it->path.c_str()) == 0 || errno == ENOENT;
      SF_CHECK_AS(RuntimeError, gone, it->path, ": cannot replace: ", std::strerror(errno));
      sync_folder(folder_of(it->path));
    }
  const auto sync_folders = [&] { std::for_each(folders.begin(), folders.end(), sync_folder); };
  const auto put = [&](Change& change) {
    if (change.temporary.empty()) {
      unlink(change.path.c_str());  // what is left behind harms nobody who reads the index
      return;
    }
    SF_CHECK_AS(RuntimeError, std::rename(change.temporary.c_str(), change.path.c_str()) == 0, change.path,
                ": cannot replace: ", std::strerror(errno), "; ", folder_,
                " is not whole now and refuses to load, until it is saved again");
    change.temporary.clear();
  };
  std::for_each(changes_.begin(), middle, put);
  sync_folders();
  std::for_each(middle, changes_.end(), put);
  sync_folders();
  changes_.clear();
}

}  // namespace sf::io
