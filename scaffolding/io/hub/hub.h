// Files of model repositories on the Hugging Face hub: looked up in the cache on this machine (hub_cache.h), downloaded
// into it where that is allowed. A download continues where an earlier one was cut, is compared with the file's
// checksum, and appears in the cache as a whole or not at all.
// Read from the environment at each call: HF_ENDPOINT, HF_TOKEN (else the file HF_TOKEN_PATH or $HF_HOME/token),
// HF_HUB_OFFLINE, HF_HUB_ETAG_TIMEOUT, HF_HUB_DOWNLOAD_TIMEOUT, HF_HUB_DISABLE_IMPLICIT_TOKEN, and the cache's place.
// Functions may be called from several threads and processes.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/io/hub/hub_cache.h"

namespace sf::io {

// Why a file of the hub cannot be had. A RuntimeError in Python.
struct HubError : RuntimeError {
  enum Reason : uint8_t {
    NotCached,    // not on this machine, and nothing may be downloaded
    Unreachable,  // no answer, or the server is in trouble
    Denied,       // private or gated, or no such repository: the hub does not tell these apart without a token
    Missing,      // the repository, revision or file does not exist
    Broken,       // the answer makes no sense: sizes, checksums, names
  };
  HubError(Reason why, const std::string& what) : RuntimeError(printable(what)), reason(why) {}
  Reason reason;
};

struct HubProgress {
  uint64_t done = 0, total = 0;  // bytes; total is 0 while nobody knows it
  size_t files = 0;              // that are complete, of
  size_t all_files = 0;
};

struct HubOptions {
  std::string revision = "main";     // a branch, a tag or a commit
  std::string cache_dir;             // "": default_hub_cache()
  std::optional<std::string> token;  // absent: the environment's; "": none is sent
  std::string endpoint;              // "": HF_ENDPOINT, else https://huggingface.co
  bool local_files_only = false;     // as HF_HUB_OFFLINE=1
  bool force_download = false;       // even where the cache has the file
  // of snapshots: as huggingface_hub's; no allow_patterns: all
  std::vector<std::string> allow_patterns, ignore_patterns;
  int max_workers = 8;    // files at a time
  int retries = 5;        // in a row without a new byte
  double retry_wait = 1;  // seconds before the first retry; doubles, up to 8
  std::function<void(const HubProgress&)>
      progress;  // on the calling thread, several times a second; may throw, which ends the download
};

bool hub_offline();  // HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE

// The path of a file in the cache, if it is there for that revision; never asks the network.
std::optional<std::string> find_in_cache(const std::string& repo_id, const std::string& filename,
                                         const HubOptions& options = {});

// The path of a repository's file in the cache. The server is asked what the revision means today, except for a commit;
// when it does not answer, what is in the cache serves.
std::string hub_download(const std::string& repo_id, const std::string& filename, const HubOptions& options = {});

// The folder with a repository's files that the patterns let through.
std::string snapshot_download(const std::string& repo_id, const HubOptions& options = {});

struct RepoListing {
  std::string commit;
  std::vector<RepoFile> files;
};
// What a repository holds, by one request; offline from the cache, if a snapshot was ever downloaded there.
RepoListing list_repo_files(const std::string& repo_id, const HubOptions& options = {});

}  // namespace sf::io
