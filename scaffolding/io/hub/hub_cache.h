// HubCache: one model repository's folder in the cache that the Hugging Face tools share, with the layout of
// huggingface_hub (file_download.py):
//   models--org--name/refs/main                   the commit that a branch or tag meant when it was last asked for
//                     blobs/<etag>                a file's bytes, under its checksum
//                     snapshots/<commit>/path     links into blobs
//                     .no_exist/<commit>/path     empty: the repository has no such file
//                     trees/<commit>.json         the list of its files
//   .locks/models--org--name/<etag>.lock          held (flock) while a blob is written
// Names come from strangers and are checked before they become paths.
// Functions may be called from several threads and processes.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sf::io {

// $HF_HUB_CACHE, else $HUGGINGFACE_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub.
std::string default_hub_cache();
std::string hub_home();                            // the folder above it that has the token
std::string expand_user(const std::string& path);  // a leading ~ and $VARIABLES replaced
bool hub_flag(const char* name);                   // an environment variable is 1, ON, YES or TRUE
std::string environment(const char* name);         // its value, or ""
bool is_repo_id(const std::string& text);          // "name" or "org/name" as the hub allows them
bool is_commit(const std::string& text);           // 40 hexadecimal digits
void check_repo_id(const std::string& repo_id);    // ValueError
void check_revision(const std::string& revision);  // ValueError: would be a path outside of refs/
void check_repo_path(const std::string& path);     // ValueError: absolute, "..", a drive, a control character
bool matches_pattern(const std::string& pattern, const std::string& path);  // Python's fnmatchcase: * crosses folders

struct RepoFile {
  std::string path;
  std::optional<uint64_t> size;
  std::string blob_id, sha256;  // git's id; of large files the checksum. Empty where the server did not say
};

class HubCache {
 public:
  HubCache(const std::string& cache_dir, const std::string& repo_id);
  const std::string& folder() const { return folder_; }
  // The commit that a branch, tag or commit stands for here; empty when it was never asked for.
  std::string commit_of(const std::string& revision) const;
  std::string snapshot(const std::string& commit) const;  // the folder, whether it is there or not
  std::string pointer(const std::string& commit, const std::string& path) const;
  std::string blob(const std::string& etag) const;
  // the server said that there is no such file
  bool known_missing(const std::string& commit, const std::string& path) const;

  void write_ref(const std::string& revision, const std::string& commit) const;
  void write_missing(const std::string& commit, const std::string& path) const;
  // replaces what is there
  void link(const std::string& commit, const std::string& path, const std::string& etag) const;
  void prepare() const;  // makes the folders, marks the cache for backup programs

  std::optional<std::vector<RepoFile>> read_tree(const std::string& commit) const;
  // nothing where a file lacks size or blob_id
  void write_tree(const std::string& commit, const std::vector<RepoFile>& files) const;

  // Held while it lives. Waits; `waiting` is called several times a second and may throw.
  class Lock {
   public:
    template <class F>
    Lock(const HubCache& cache, const std::string& etag, const F& waiting) : fd_(cache.open_lock(etag)) {
      while (!try_lock()) waiting();
    }
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    bool try_lock() const;  // sleeps a little before it says no
    int fd_;
  };

 private:
  int open_lock(const std::string& etag) const;
  std::string cache_, name_, folder_;
};

}  // namespace sf::io
