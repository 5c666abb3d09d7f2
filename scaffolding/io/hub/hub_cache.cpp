#include "scaffolding/io/hub/hub_cache.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/json.h"

namespace sf::io {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMaxRef = 4096, kMaxTree = 64 << 20;  // bytes

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  SF_CHECK_AS(RuntimeError, !error, "hub: cannot create ", folder.string(), ": ", error.message());
}

// "" where there is no file, or one of more bytes than that.
std::string small_file(const std::string& path, uint64_t most) {
  std::error_code error;
  uint64_t size = fs::file_size(path, error);
  if (error || size > most) return "";
  std::string text(size_t(size), '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), std::streamsize(text.size()));
  text.resize(size_t(in.gcount()));
  return text;
}

void write_whole(const std::string& path, const std::string& text) {
  make_folder(fs::path(path).parent_path());
  ReplacingFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool hub_flag(const char* name) {
  std::string v = environment(name);
  std::transform(v.begin(), v.end(), v.begin(), [](unsigned char c) { return char(std::toupper(c)); });
  return v == "1" || v == "ON" || v == "YES" || v == "TRUE";
}

std::string expand_user(const std::string& path) {
  std::string out;
  size_t i = 0;
  if (path == "~" || path.rfind("~/", 0) == 0) {
    out = environment("HOME");
    if (const passwd* user = out.empty() ? getpwuid(getuid()) : nullptr) out = user->pw_dir;
    i = 1;
  }
  while (i < path.size()) {
    if (path[i] != '$') {
      out += path[i++];
      continue;
    }
    bool braces = i + 1 < path.size() && path[i + 1] == '{';
    size_t from = i + 1 + braces, to = from;
    while (to < path.size() && (std::isalnum(static_cast<unsigned char>(path[to])) || path[to] == '_')) ++to;
    std::string name = path.substr(from, to - from);
    bool whole = !name.empty() && std::getenv(name.c_str()) && (!braces || (to < path.size() && path[to] == '}'));
    if (whole) {
      out += environment(name.c_str());
      i = to + braces;
    } else {
      out += path[i++];
    }
  }
  return out;
}

std::string hub_home() {
  if (auto home = environment("HF_HOME"); !home.empty()) return expand_user(home);
  auto base = environment("XDG_CACHE_HOME");
  return expand_user((base.empty() ? "~/.cache" : base) + "/huggingface");
}

std::string default_hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (auto cache = environment(name); !cache.empty()) return expand_user(cache);
  return hub_home() + "/hub";
}

bool is_commit(const std::string& s) {
  return s.size() == 40 &&
         std::all_of(s.begin(), s.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_repo_id(const std::string& id) {
  size_t slash = id.find('/');
  auto part = [](const std::string& s) {
    auto word = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
    return !s.empty() && s.size() <= 96 && word(static_cast<unsigned char>(s.front())) &&
           word(static_cast<unsigned char>(s.back())) &&
           std::all_of(s.begin(), s.end(), [&](unsigned char c) { return word(c) || c == '-' || c == '.'; });
  };
  if (id.find("--") != std::string::npos || id.find("..") != std::string::npos) return false;
  if (id.size() > 4 && id.compare(id.size() - 4, 4, ".git") == 0) return false;
  return slash == std::string::npos ? part(id) : part(id.substr(0, slash)) && part(id.substr(slash + 1));
}

void check_repo_id(const std::string& id) {
  SF_CHECK(is_repo_id(id),
           "hub: a repository is called 'name' or 'organisation/name', of letters, digits, '-', '_' and '.', without "
           "'--' or '..', got '",
           id, "'");
}

void check_repo_path(const std::string& path) {
  auto refuse = [&](const char* why) {
    fail("hub: the file name '", printable(path.substr(0, 200)), "' ", why,
         ", and would be written outside of the cache");
  };
  SF_CHECK(!path.empty() && path.back() != '/', "hub: '", printable(path), "' is no file name");
  if (path.front() == '/' || path.find('\\') != std::string::npos) refuse("is an absolute path or has a backslash");
  if (std::any_of(path.begin(), path.end(), [](unsigned char c) { return c < 32 || c == 127; }))
    refuse("has a control character");
  for (size_t at = 0; at <= path.size();) {
    size_t end = std::min(path.find('/', at), path.size());
    std::string part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") refuse("has an empty part, '.' or '..'");
    if (part.size() >= 2 && part[1] == ':' && std::isalpha(static_cast<unsigned char>(part[0])))
      refuse("names a drive");
    at = end + 1;
  }
}

void check_revision(const std::string& revision) {
  bool good = !revision.empty() && revision.size() <= 255;
  for (size_t at = 0; good && at <= revision.size();) {
    size_t end = std::min(revision.find('/', at), revision.size());
    std::string part = revision.substr(at, end - at);
    good = !part.empty() && part != "." && part != ".." && std::none_of(part.begin(), part.end(), [](unsigned char c) {
      return c <= 32 || c == 127 || std::strchr("\\:?*[~^", c);
    });
    at = end + 1;
  }
  SF_CHECK(good, "hub: a revision is a branch, a tag or a commit, got '", revision, "'");
}

// Two pointers and the place of the last star: linear in practice, quadratic at worst, never exponential.
bool matches_pattern(const std::string& pattern, const std::string& path) {
  size_t p = 0, s = 0, star = std::string::npos, from = 0;
  // The end of a set "[...]" that begins at i, or npos: then '[' means itself. ok: whether c is in it.
  auto set = [&](size_t i, char c, bool& ok) {
    size_t at = i + 1;
    bool negated = at < pattern.size() && pattern[at] == '!';
    at += negated;
    size_t end = pattern.find(']', at + 1);
    if (end == std::string::npos) return end;
    ok = false;
    for (; at < end; ++at) {
      if (at + 2 < end && pattern[at + 1] == '-') {
        ok |= pattern[at] <= c && c <= pattern[at + 2];
        at += 2;
      } else {
        ok |= pattern[at] == c;
      }
    }
    ok ^= negated;
    return end;
  };
  while (s < path.size()) {
    bool ok = false;
    size_t next = p + 1;
    if (p < pattern.size()) {
      if (pattern[p] == '*') {
        star = p++;
        from = s;
        continue;
      }
      size_t end = pattern[p] == '[' ? set(p, path[s], ok) : std::string::npos;
      if (end != std::string::npos) {
        next = end + 1;
      } else {
        ok = pattern[p] == '?' || pattern[p] == path[s];
      }
    }
    if (ok) {
      p = next;
      ++s;
    } else if (star != std::string::npos) {
      p = star + 1;
      s = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

HubCache::HubCache(const std::string& cache_dir, const std::string& repo_id) {
  check_repo_id(repo_id);
  cache_ = cache_dir.empty() ? default_hub_cache() : expand_user(cache_dir);
  name_ = "models--" + repo_id;
  if (size_t slash = name_.find('/'); slash != std::string::npos) name_.replace(slash, 1, "--");
  folder_ = (fs::path(cache_) / name_).string();
}

std::string HubCache::commit_of(const std::string& revision) const {
  check_revision(revision);
  if (is_commit(revision)) return revision;
  std::string commit = small_file(folder_ + "/refs/" + revision, kMaxRef);
  while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back()))) commit.pop_back();
  return is_commit(commit) ? commit : "";
}

std::string HubCache::snapshot(const std::string& commit) const { return folder_ + "/snapshots/" + commit; }

std::string HubCache::pointer(const std::string& commit, const std::string& path) const {
  check_repo_path(path);
  return snapshot(commit) + "/" + path;
}

std::string HubCache::blob(const std::string& etag) const { return folder_ + "/blobs/" + etag; }

bool HubCache::known_missing(const std::string& commit, const std::string& path) const {
  return exists(folder_ + "/.no_exist/" + commit + "/" + path);
}

void HubCache::write_ref(const std::string& revision, const std::string& commit) const {
  check_revision(revision);
  if (revision != commit && commit_of(revision) != commit) write_whole(folder_ + "/refs/" + revision, commit);
}

void HubCache::write_missing(const std::string& commit, const std::string& path) const {
  check_repo_path(path);
  if (!known_missing(commit, path)) write_whole(folder_ + "/.no_exist/" + commit + "/" + path, "");
}

void HubCache::link(const std::string& commit, const std::string& path, const std::string& etag) const {
  std::string to = pointer(commit, path), made = to + ".tmp" + std::to_string(getpid());
  make_folder(fs::path(to).parent_path());
  // A link relative to its own folder: the cache may be moved.
  std::string target = "../../blobs/" + etag;
  for (char c : path)
    if (c == '/') target = "../" + target;
  std::error_code error;
  fs::remove(made, error);
  fs::create_symlink(target, made, error);
  if (error) {  // a file system without links has the bytes in the snapshot, as huggingface_hub has it there
    error.clear();
    fs::copy_file(blob(etag), made, fs::copy_options::overwrite_existing, error);
  }
  if (!error) fs::rename(made, to, error);
  SF_CHECK_AS(RuntimeError, !error, "hub: cannot create ", to, ": ", error.message());
}

void HubCache::prepare() const {
  make_folder(folder_ + "/blobs");
  make_folder(fs::path(cache_) / ".locks" / name_);
  // Cache Directory Tagging Specification (bford.info/cachedir).
  std::string tag = cache_ + "/CACHEDIR.TAG";
  if (!exists(tag)) write_whole(tag, "Signature: 8a477f597d28d172789f06886806bc55\n");
}

std::optional<std::vector<RepoFile>> HubCache::read_tree(const std::string& commit) const {
  std::string text = small_file(folder_ + "/trees/" + commit + ".json", kMaxTree);
  auto tree = parse_json(text);
  // a newer program's; huggingface_hub ignores it too
  if (!tree.is_object() || tree.value("format_version", nlohmann::json()) != 1) return {};
  std::vector<RepoFile> files;
  auto found = tree.find("files");
  if (found == tree.end() || !found->is_object()) return {};
  for (auto& [path, info] : found->items()) {
    if (!info.is_object()) return {};
    RepoFile f{path, {}, "", ""};
    if (auto size = info.find("size"); size != info.end() && size->is_number_unsigned()) f.size = size->get<uint64_t>();
    if (auto id = info.find("blob_id"); id != info.end() && id->is_string()) f.blob_id = id->get<std::string>();
    if (auto sha = info.find("lfs_sha256"); sha != info.end() && sha->is_string()) f.sha256 = sha->get<std::string>();
    files.push_back(std::move(f));
  }
  return files;
}

void HubCache::write_tree(const std::string& commit, const std::vector<RepoFile>& files) const {
  nlohmann::json all = nlohmann::json::object();
  for (auto& f : files) {
    if (!f.size || f.blob_id.empty()) return;
    nlohmann::json info = {{"size", *f.size}, {"blob_id", f.blob_id}};
    if (!f.sha256.empty()) info["lfs_sha256"] = f.sha256, info["lfs_size"] = *f.size;
    all[f.path] = info;
  }
  nlohmann::json tree = {{"format_version", 1}, {"files", all}};
  write_whole(folder_ + "/trees/" + commit + ".json", json_text(tree, 1));
}

int HubCache::open_lock(const std::string& etag) const {
  std::string path = cache_ + "/.locks/" + name_ + "/" + etag + ".lock";
  int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
  SF_CHECK_AS(RuntimeError, fd >= 0, "hub: cannot open ", path, ": ", std::strerror(errno));
  return fd;
}

bool HubCache::Lock::try_lock() const {
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return true;
  SF_CHECK_AS(RuntimeError, errno == EWOULDBLOCK || errno == EINTR,
              "hub: cannot lock a file of the cache: ", std::strerror(errno));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return false;
}

HubCache::Lock::~Lock() { close(fd_); }  // which unlocks; the file stays, as others may wait for it

}  // namespace sf::io
