#include "scaffolding/io/hub/hub.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>

#include "scaffolding/io/hub/hub_client.h"

namespace sf::io {

namespace fs = std::filesystem;

namespace {

bool is_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

const char* why_offline(const HubOptions& options) {
  return options.local_files_only ? "local_files_only is set" : hub_offline() ? "HF_HUB_OFFLINE is set" : nullptr;
}

// "what", where it was expected, and what to do.
[[noreturn]] void fail_not_cached(const std::string& repo_id, const HubCache& cache, const HubOptions& options,
                                  const std::string& what, const char* why) {
  std::string commit = cache.commit_of(options.revision);
  std::string expected = commit.empty() ? cache.folder() + "/refs/" + options.revision : cache.snapshot(commit);
  throw HubError(HubError::NotCached,
                 "hub: " + what + " of " + repo_id + " is not on this machine and nothing is downloaded, since " + why +
                     "; expected " + expected + ". Download it where there is a network and copy the folder " +
                     fs::path(cache.folder()).filename().string() + " into " +
                     fs::path(cache.folder()).parent_path().string());
}

std::string cached_file(const HubCache& cache, const std::string& filename, const std::string& revision) {
  std::string commit = cache.commit_of(revision);
  if (commit.empty()) return "";
  std::string path = cache.pointer(commit, filename);
  return is_file(path) ? path : "";
}

// The steps of huggingface_hub's _hf_hub_download_to_cache_dir.
std::string download_one(HubClient& client, const std::string& repo_id, const HubCache& cache,
                         const std::string& filename, const std::string& revision, const HubOptions& options,
                         Meter& meter, bool counted, const std::function<void()>& tick) {
  std::string cached = options.force_download ? "" : cached_file(cache, filename, revision);
  if (!cached.empty() && is_commit(revision)) return cached;
  if (const char* why = why_offline(options)) {
    SF_CHECK(!options.force_download, "hub: force_download needs the network, but ", why);
    if (!cached.empty()) return cached;
    if (std::string commit = cache.commit_of(revision); !commit.empty() && cache.known_missing(commit, filename))
      throw HubError(HubError::Missing,
                     "hub: " + repo_id + " has no file '" + filename + "', as the server said when it was last asked");
    fail_not_cached(repo_id, cache, options, "file '" + filename + "'", why);
  }
  HubClient::Metadata file;
  try {
    file = client.metadata(cache, filename, revision, cached.empty() ? options.retries : 0);
  } catch (const HubError& e) {
    // What an earlier download left serves while the server does not answer, as in huggingface_hub.
    if (!cached.empty() && (e.reason == HubError::Unreachable || e.reason == HubError::Denied)) return cached;
    throw;
  }
  std::string pointer = cache.pointer(file.commit, filename);
  if (!options.force_download && is_file(pointer)) {
    try {
      cache.write_ref(revision, file.commit);
    } catch (const RuntimeError&) {
      return pointer;  // a cache that may only be read serves all the same
    }
    return pointer;
  }
  cache.prepare();
  cache.write_ref(revision, file.commit);
  HubCache::Lock lock(cache, file.etag, tick);
  if (!counted && file.size) meter.total += *file.size;
  if (options.force_download || !is_file(cache.blob(file.etag))) {
    client.fetch(cache, filename, file);
  } else if (file.size) {
    meter.done += *file.size;
  }
  if (options.force_download || !is_file(pointer)) cache.link(file.commit, filename, file.etag);
  return pointer;
}

bool wanted(const HubOptions& options, const std::string& path) {
  auto any = [&](const std::vector<std::string>& patterns) {
    return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) {
      return matches_pattern(!p.empty() && p.back() == '/' ? p + "*" : p, path);
    });
  };
  return (options.allow_patterns.empty() || any(options.allow_patterns)) && !any(options.ignore_patterns);
}

HubProgress progress_of(const Meter& meter, size_t files) { return {meter.done, meter.total, meter.files, files}; }

// Lets threads of their own download the files, while this one reports. The first error ends all.
void download_all(const std::string& repo_id, const HubCache& cache, const std::vector<RepoFile>& files,
                  const std::string& commit, const HubOptions& options) {
  Meter meter;
  for (auto& f : files) meter.total += f.size.value_or(0);
  std::atomic<size_t> next{0}, running{0};
  std::mutex mutex;
  std::exception_ptr failed;
  struct Stopped {};
  auto tick = [&] {
    if (meter.stop) throw Stopped();
  };
  auto work = [&] {
    try {
      HubClient client(repo_id, options, meter, tick);
      for (size_t i; (i = next++) < files.size(); ++meter.files) {
        bool there = !options.force_download && is_file(cache.pointer(commit, files[i].path));
        if (there) meter.done += files[i].size.value_or(0);
        if (!there)
          download_one(client, repo_id, cache, files[i].path, commit, options, meter, files[i].size.has_value(), tick);
      }
    } catch (const Stopped&) {  // another one's error
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!failed) failed = std::current_exception();
      meter.stop = true;
    }
    --running;
  };
  std::vector<std::thread> threads;
  auto join = [&] {
    for (auto& t : threads) t.join();
  };
  size_t count = std::min(files.size(), size_t(std::clamp(options.max_workers, 1, 64)));
  for (running = count; threads.size() < count;) threads.emplace_back(work);
  try {
    while (running > 0) {
      if (options.progress) options.progress(progress_of(meter, files.size()));
      std::this_thread::sleep_for(std::chrono::milliseconds(running > 0 ? 20 : 0));
    }
  } catch (...) {
    meter.stop = true;
    join();
    throw;
  }
  join();
  if (failed) std::rethrow_exception(failed);
  if (options.progress) options.progress(progress_of(meter, files.size()));
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(3, names.size()); ++i) out += (i ? ", " : "") + names[i];
  return names.size() > 3 ? out + " and " + std::to_string(names.size() - 3) + " more" : out;
}

}  // namespace

bool hub_offline() { return hub_flag("HF_HUB_OFFLINE") || hub_flag("TRANSFORMERS_OFFLINE"); }

std::optional<std::string> find_in_cache(const std::string& repo_id, const std::string& filename,
                                         const HubOptions& options) {
  HubCache cache(options.cache_dir, repo_id);
  check_repo_path(filename);
  std::string path = cached_file(cache, filename, options.revision);
  return path.empty() ? std::nullopt : std::optional(path);
}

std::string hub_download(const std::string& repo_id, const std::string& filename, const HubOptions& options) {
  HubCache cache(options.cache_dir, repo_id);
  check_repo_path(filename);
  check_revision(options.revision);
  Meter meter;
  auto tick = [&] {
    if (options.progress) options.progress(progress_of(meter, 1));
  };
  HubClient client(repo_id, options, meter, tick);
  std::string path = download_one(client, repo_id, cache, filename, options.revision, options, meter, false, tick);
  meter.files = 1;
  tick();
  return path;
}

RepoListing list_repo_files(const std::string& repo_id, const HubOptions& options) {
  HubCache cache(options.cache_dir, repo_id);
  check_revision(options.revision);
  std::string commit = cache.commit_of(options.revision);
  auto known = commit.empty() ? std::nullopt : cache.read_tree(commit);
  if (known && is_commit(options.revision)) return {commit, *known};
  const char* why = why_offline(options);
  if (!why) {
    try {
      Meter meter;
      auto tick = [&] {
        if (options.progress) options.progress({});
      };
      RepoListing now = HubClient(repo_id, options, meter, tick).listing(options.revision, known ? 0 : options.retries);
      cache.prepare();
      cache.write_tree(now.commit, now.files);
      cache.write_ref(options.revision, now.commit);
      return now;
    } catch (const HubError& e) {
      if (!known || (e.reason != HubError::Unreachable && e.reason != HubError::Denied)) throw;
    }
  }
  if (!known) fail_not_cached(repo_id, cache, options, "the list of files", why);
  return {commit, *known};
}

std::string snapshot_download(const std::string& repo_id, const HubOptions& options) {
  HubCache cache(options.cache_dir, repo_id);
  check_revision(options.revision);
  std::string commit = cache.commit_of(options.revision), why = why_offline(options) ? why_offline(options) : "";
  SF_CHECK(why.empty() || !options.force_download, "hub: force_download needs the network, but ", why);
  std::error_code ignored;
  bool cached = !commit.empty() && fs::is_directory(cache.snapshot(commit), ignored);
  auto files = commit.empty() ? std::nullopt : cache.read_tree(commit);
  if (why.empty() && !(files && is_commit(options.revision))) {
    try {
      Meter meter;
      auto tick = [&] {
        if (options.progress) options.progress({});
      };
      RepoListing now =
          HubClient(repo_id, options, meter, tick).listing(options.revision, cached ? 0 : options.retries);
      commit = now.commit;
      files = std::move(now.files);
      cache.prepare();
      cache.write_tree(commit, *files);
      cache.write_ref(options.revision, commit);
    } catch (const HubError& e) {
      if (!cached || options.force_download || (e.reason != HubError::Unreachable && e.reason != HubError::Denied))
        throw;
      why = e.what();
    }
  }
  if (!why.empty() && !cached)
    fail_not_cached(repo_id, cache, options, "revision '" + options.revision + "'", why.c_str());
  std::vector<RepoFile> chosen;
  if (files)
    std::copy_if(files->begin(), files->end(), std::back_inserter(chosen),
                 [&](const RepoFile& f) { return wanted(options, f.path); });
  if (files && !files->empty() && chosen.empty())
    throw HubError(HubError::Missing, "hub: none of the " + std::to_string(files->size()) + " files of " + repo_id +
                                          " is let through by allow_patterns and ignore_patterns");
  if (why.empty()) {
    download_all(repo_id, cache, chosen, commit, options);
  } else {
    std::vector<std::string> missing;  // without a list nobody can tell: the folder is returned as it is
    for (auto& f : chosen)
      if (!is_file(cache.pointer(commit, f.path))) missing.push_back(f.path);
    if (!missing.empty())
      fail_not_cached(repo_id, cache, options,
                      std::to_string(missing.size()) + " of the files (" + listed(missing) + ")", why.c_str());
  }
  return cache.snapshot(commit);
}

}  // namespace sf::io
