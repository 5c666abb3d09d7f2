#include "scaffolding/io/hub/hub_client.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "scaffolding/io/hub/unreachable.h"
#include "scaffolding/io/json.h"
#include "scaffolding/io/sha.h"

namespace sf::io {

namespace {

constexpr int kMaxRedirects = 10;
constexpr double kConnectTimeout = 2.5;  // seconds
// Of a file whose size neither the hub nor the answer says; large ones have X-Linked-Size.
constexpr uint64_t kMostUnsized = uint64_t(64) << 20;

template <class... P> [[noreturn]] void refuse_as(HubError::Reason reason, const P&... parts) {
  throw HubError(reason, message_of({parts...}));
}

double seconds(const char* name, double fallback) {
  std::string text = environment(name);
  double v = std::strtod(text.c_str(), nullptr);
  return v > 0 && v < 1e6 ? v : fallback;
}

std::string trimmed(std::string s) {
  size_t from = s.find_first_not_of(" \t\r\n"), to = s.find_last_not_of(" \t\r\n");
  return from == std::string::npos ? "" : s.substr(from, to - from + 1);
}

std::string token_from_environment() {
  if (hub_flag("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return "";
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (auto token = trimmed(environment(name)); !token.empty()) return token;
  std::string path = environment("HF_TOKEN_PATH");
  std::ifstream in(path.empty() ? hub_home() + "/token" : expand_user(path));
  std::string token;
  std::getline(in, token);
  return trimmed(token);
}

bool worth_retrying(long status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

// W/"abc" and "abc" are abc. It becomes a file name, so anything else than a plain word is refused.
std::string checked_etag(std::string etag, const std::string& url) {
  if (etag.rfind("W/", 0) == 0) etag = etag.substr(2);
  etag.erase(std::remove(etag.begin(), etag.end(), '"'), etag.end());
  bool good = !etag.empty() && etag.size() <= 200 && etag[0] != '.' &&
              std::all_of(etag.begin(), etag.end(), [](unsigned char c) {
                return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '+' || c == '=';
              });
  if (!good)
    refuse_as(HubError::Broken, "hub: ", url, " has no ETag that could name a file, got '", etag.substr(0, 100), "'");
  return etag;
}

std::optional<uint64_t> number(const std::string& text) {
  if (text.empty() || text.size() > 18 ||
      !std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); }))
    return {};
  return std::strtoull(text.c_str(), nullptr, 10);
}

bool is_hex(const std::string& s, size_t digits) {
  return s.size() == digits && s.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

HubClient::HubClient(const std::string& repo_id, const HubOptions& options, Meter& meter, std::function<void()> tick)
    : repo_id_(repo_id), options_(options), meter_(meter), tick_(std::move(tick)) {
  endpoint_ = options.endpoint.empty() ? environment("HF_ENDPOINT") : options.endpoint;
  if (endpoint_.empty()) endpoint_ = "https://huggingface.co";
  while (endpoint_.size() > 1 && endpoint_.back() == '/') endpoint_.pop_back();
  token_ = options.token ? trimmed(*options.token) : token_from_environment();
  SF_CHECK(std::all_of(token_.begin(), token_.end(), [](unsigned char c) { return c > 32 && c < 127; }),
           "hub: the token has a character that no token has");
  url_origin(endpoint_);
}

// The endpoint, and where a mirror may send us back to: the hub itself.
bool HubClient::trusted(const std::string& url) const {
  std::string origin = url_origin(url);
  return origin == url_origin(endpoint_) || origin == "https://huggingface.co:443" || origin == "https://hf.co:443";
}

std::vector<std::string> HubClient::headers_for(const std::string& url) const {
  // sizes and checksums are of the file, not of a compressed form
  std::vector<std::string> out = {"Accept-Encoding: identity"};
  if (!token_.empty() && trusted(url)) out.push_back("Authorization: Bearer " + token_);
  return out;
}

void HubClient::wait(int failures, const HttpResponse* answer) {
  double pause = std::min(8.0, options_.retry_wait * double(1 << std::min(failures, 10)));
  if (answer)
    if (auto asked = number(answer->header("retry-after"))) pause = std::max(pause, std::min(60.0, double(*asked)));
  auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(pause);
  while (std::chrono::steady_clock::now() < until) {
    tick_();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void HubClient::refuse(const HttpResponse& answer, const std::string& what) const {
  std::string code = answer.header("x-error-code"), page = endpoint_ + "/" + repo_id_;
  std::string status = " (HTTP " + std::to_string(answer.status) + ")";
  const char* login = "set HF_TOKEN, or pass token";
  if (code == "GatedRepo" || (answer.status == 403 && code.empty()))
    refuse_as(HubError::Denied, "hub: ", repo_id_, " is gated", status, ": ask for access at ", page, " and ",
              token_.empty() ? login : "pass the token of an account that has it");
  if (code == "RevisionNotFound")
    refuse_as(HubError::Missing, "hub: ", repo_id_, " has no such branch, tag or commit as ", what, " needs", status);
  if (code == "EntryNotFound") refuse_as(HubError::Missing, "hub: ", repo_id_, " has no ", what, status);
  if (answer.status == 401 || code == "RepoNotFound")
    refuse_as(answer.status == 401 ? HubError::Denied : HubError::Missing, "hub: ", repo_id_, " does not exist at ",
              endpoint_, token_.empty() ? ", or is private" : ", or the token may not read it", status,
              ": check the name", token_.empty() ? "; for a private one " : "", token_.empty() ? login : "");
  if (answer.status == 404)
    refuse_as(HubError::Missing, "hub: ", endpoint_, " has no ", what, " of ", repo_id_, status);
  if (answer.status / 100 == 3)
    refuse_as(HubError::Broken, "hub: ", endpoint_, " redirects ", what, " of ", repo_id_, " without end", status);
  refuse_as(worth_retrying(answer.status) || answer.status / 100 == 5 ? HubError::Unreachable : HubError::Denied,
            "hub: ", endpoint_, " refuses ", what, " of ", repo_id_, status);
}

// Where an answer leads to, if that may be followed.
std::string HubClient::redirected(const std::string& target) const {
  std::string origin;
  try {
    origin = url_origin(target);
  } catch (const ValueError&) {
    refuse_as(HubError::Broken, "hub: ", endpoint_, " redirects to '", target.substr(0, 200),
              "', which is no http or https address");
  }
  if (url_origin(endpoint_)[4] == 's' && origin[4] != 's')
    refuse_as(HubError::Broken, "hub: ", endpoint_, " redirects to an address without encryption, ", origin);
  return target;
}

std::string HubClient::without_network(const std::string& why) const {
  return "hub: " + why + "; is there a network, and is " + endpoint_ +
         " right? Without one, name a folder or a file on this machine, or copy the repository's folder from another "
         "machine's cache into " +
         (options_.cache_dir.empty() ? default_hub_cache() : expand_user(options_.cache_dir)) +
         ". HF_HUB_ETAG_TIMEOUT=10 waits longer for a slow one";
}

// Follows redirects; with `stay` only those among trusted hosts, and the one that leads away is the answer.
HttpResponse HubClient::ask(const std::string& method, std::string url, int retries, bool stay) {
  for (int failures = 0, redirects = 0;;) {
    const std::string origin = url_origin(url);
    if (const std::string why = why_unreachable(origin); !why.empty())
      throw HubError(HubError::Unreachable, without_network(why + ", a moment ago"));
    HttpResponse answer;
    try {
      answer = http_.send({.method = method,
                           .url = url,
                           .headers = headers_for(url),
                           .timeout = seconds("HF_HUB_ETAG_TIMEOUT", 10),
                           .connect_timeout = seconds("HF_HUB_ETAG_TIMEOUT", kConnectTimeout),
                           .tick = tick_});
    } catch (const HttpError& e) {
      // where nobody is, there is nobody a moment later: it is the network that is missing, or the address is wrong
      if (e.nobody || e.late) {
        remember_unreachable(origin, e.what());
        throw HubError(HubError::Unreachable, without_network(e.what()));
      }
      if (!e.again || failures >= retries) throw HubError(HubError::Unreachable, std::string("hub: ") + e.what());
      wait(failures++, nullptr);
      continue;
    }
    if (!answer.location.empty() && redirects++ < kMaxRedirects) {
      url = redirected(answer.location);
      if (stay && !trusted(url)) return answer;
      continue;
    }
    if (!worth_retrying(answer.status) || failures >= retries) return answer;
    wait(failures++, &answer);
  }
}

HubClient::Metadata HubClient::metadata(const HubCache& cache, const std::string& path, const std::string& revision,
                                        int retries) {
  std::string url =
      endpoint_ + "/" + repo_id_ + "/resolve/" + url_quoted(revision, false) + "/" + url_quoted(path, true);
  HttpResponse answer = ask("HEAD", url, retries, true);
  Metadata out;
  out.commit = answer.header("x-repo-commit");
  bool away = answer.status / 100 == 3 && !answer.location.empty() && !trusted(answer.location);
  if (answer.status / 100 != 2 && !away) {
    if (answer.header("x-error-code") == "EntryNotFound" && is_commit(out.commit)) {
      cache.write_missing(out.commit, path);
      cache.write_ref(revision, out.commit);
    }
    refuse(answer, "file '" + path + "'");
  }
  if (!is_commit(out.commit))
    refuse_as(
        HubError::Broken, "hub: ", endpoint_,
        " does not answer as a hub does (no commit in X-Repo-Commit); is HF_ENDPOINT right, or does a proxy answer?");
  std::string linked = answer.header("x-linked-etag");
  out.etag = checked_etag(linked.empty() ? answer.header("etag") : linked, url);
  std::string size = answer.header("x-linked-size");
  out.size = number(size.empty() && !away ? answer.header("content-length") : size);
  // Not where it leads to now: such links are signed for a short time,
  // and a download that is resumed later needs a new one.
  out.url = endpoint_ + "/" + repo_id_ + "/resolve/" + out.commit + "/" + url_quoted(path, true);
  return out;
}

RepoListing parse_repo_listing(const std::string& body, const std::string& whose) {
  auto json = parse_json(body);
  auto bad = [&](const std::string& what) {
    refuse_as(HubError::Broken, "hub: the list of files of ", whose, " ", what);
  };
  if (!json.is_object()) bad("is no JSON object");
  auto text = [](const nlohmann::json& in, const char* key) {
    auto found = in.find(key);
    return found != in.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  RepoListing out;
  out.commit = text(json, "sha");
  if (!is_commit(out.commit)) bad("names no commit");
  auto files = json.find("siblings");
  if (files == json.end() || !files->is_array()) bad("has no 'siblings'");
  for (auto& entry : *files) {
    if (!entry.is_object()) bad("has an entry that is no object");
    RepoFile f{text(entry, "rfilename"), {}, text(entry, "blobId"), ""};
    check_repo_path(f.path);
    if (auto size = entry.find("size"); size != entry.end() && size->is_number_unsigned())
      f.size = size->get<uint64_t>();
    if (auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object()) f.sha256 = text(*lfs, "sha256");
    out.files.push_back(std::move(f));
  }
  return out;
}

RepoListing HubClient::listing(const std::string& revision, int retries) {
  std::string url = endpoint_ + "/api/models/" + repo_id_ + "/revision/" + url_quoted(revision, false) + "?blobs=true";
  HttpResponse answer = ask("GET", url, retries, false);
  if (answer.status != 200) refuse(answer, "revision '" + revision + "'");
  return parse_repo_listing(answer.body, repo_id_ + " from " + endpoint_);
}

// The file that grows, and the checksum of what it has so far. An etag of 64 digits is the file's SHA-256, one of 40 is
// git's SHA-1 of "blob <size>\0" and the bytes; others say nothing about the content.
struct HubClient::Receiving {
  std::string name, path;  // in the repository, on the disk
  int fd = -1;
  uint64_t have = 0;
  std::optional<uint64_t> size;
  std::string etag;
  std::optional<Sha> sha;
  Meter& meter;
  bool came = false;  // a byte, from whatever server

  ~Receiving() {
    if (fd >= 0) close(fd);
  }
  [[noreturn]] void fail_errno(const char* what) const {
    fail<RuntimeError>("hub: cannot ", what, " ", path, ": ", std::strerror(errno));
  }

  void open_file() {
    fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) fail_errno("create");
    have = uint64_t(st.st_size);
    meter.done += have;
  }
  void restart() {
    if (ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) != 0) fail_errno("write");
    meter.done -= have;
    have = 0;
    start_sum();
  }
  void start_sum() {
    sha.reset();
    if (is_hex(etag, 64)) sha.emplace(Sha::Sha256);
    if (is_hex(etag, 40) && size) {
      sha.emplace(Sha::Sha1);
      std::string head = "blob " + std::to_string(*size);
      sha->update(head.c_str(), head.size() + 1);
    }
  }
  // Reads what an earlier run left into the checksum.
  void catch_up(const std::function<void()>& tick) {
    start_sum();
    std::vector<char> buffer(size_t(1) << 20);
    for (uint64_t at = 0; at < have;) {
      ssize_t n = pread(fd, buffer.data(), buffer.size(), off_t(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail_errno("read");
      if (sha) sha->update(buffer.data(), size_t(n));
      at += uint64_t(n);
      tick();
    }
    if (lseek(fd, off_t(have), SEEK_SET) < 0) fail_errno("read");
  }
  bool take(const char* data, size_t bytes) {
    if (bytes > size.value_or(kMostUnsized) - have) return false;
    came = true;
    for (size_t at = 0; at < bytes;) {
      ssize_t n = ::write(fd, data + at, bytes - at);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_errno("write");
      at += size_t(n);
    }
    if (sha) sha->update(data, bytes);
    have += bytes;
    meter.done += bytes;
    return true;
  }
};

// One request for the bytes that are missing. Returns when it ended; the file may still be short.
void HubClient::receive(Receiving& to, const Metadata& file) {
  std::string url = file.url;
  for (int redirects = 0;; ++redirects) {
    HttpRequest request{
        .url = url, .headers = headers_for(url), .timeout = seconds("HF_HUB_DOWNLOAD_TIMEOUT", 10), .tick = tick_};
    if (to.have > 0) request.headers.push_back("Range: bytes=" + std::to_string(to.have) + "-");
    bool too_long = false;
    request.head = [&](const HttpResponse& answer) {
      std::string range = answer.header("content-range"), encoding = answer.header("content-encoding");
      if (!encoding.empty() && encoding != "identity")
        refuse_as(HubError::Broken, "hub: ", url_origin(url), " sends ", file.etag, " compressed, unasked");
      bool continues = answer.status == 206 && range.rfind("bytes " + std::to_string(to.have) + "-", 0) == 0;
      if (to.have > 0 && !continues) to.restart();
      if (answer.status == 206 && !continues)
        refuse_as(HubError::Broken, "hub: ", url_origin(url), " sends another part of the file than it was asked for");
      auto total = number(continues ? range.substr(range.rfind('/') + 1) : answer.header("content-length"));
      if (!to.size && total) {
        to.size = total;
        meter_.total += *total;
        check_room(to);
        if (to.have == 0) to.start_sum();
      }
      if (to.size && total && *to.size != *total)
        refuse_as(HubError::Broken, "hub: ", url_origin(url), " offers ", *total, " bytes of a file that has ",
                  *to.size);
    };
    request.body = [&](const char* data, size_t bytes) { return to.take(data, bytes) || (too_long = true, false); };
    HttpResponse answer;
    try {
      answer = http_.send(request);
    } catch (const HttpError& e) {
      if (!e.nobody || redirects == 0 || to.came) throw;
      refuse_as(HubError::Unreachable, "hub: ", url_origin(url), ", where ", endpoint_,
                " keeps the file, cannot be reached: ", e.what());
    }
    if (too_long && !to.size) {
      to.restart();
      unlink(to.path.c_str());
      refuse_as(HubError::Broken, "hub: ", url_origin(url), " sends more than ", kMostUnsized,
                " bytes of a file whose size it does not say; it was not kept");
    }
    if (too_long)
      refuse_as(HubError::Broken, "hub: ", url_origin(url), " sends more than the ", *to.size,
                " bytes that the file has");
    if (!answer.location.empty() && redirects < kMaxRedirects) {
      url = redirected(answer.location);
      continue;
    }
    if (answer.status == 416) return to.restart();  // what is there is no beginning of this file
    if (worth_retrying(answer.status))
      throw HttpError("GET " + url_origin(url) + ": HTTP " + std::to_string(answer.status), true);
    if (answer.status / 100 != 2 && !trusted(url))
      refuse_as(HubError::Unreachable, "hub: ", url_origin(url), ", where ", endpoint_,
                " keeps the file, refuses to send it (HTTP ", answer.status, ")");
    if (answer.status / 100 != 2) refuse(answer, "the bytes");
    if (!to.size) to.size = to.have;
    return;
  }
}

void HubClient::check_room(const Receiving& to) const {
  struct statvfs disk;
  const uint64_t wanted = to.size && *to.size > to.have ? *to.size - to.have : 0;
  if (fstatvfs(to.fd, &disk) == 0)
    SF_CHECK_AS(RuntimeError, wanted <= uint64_t(disk.f_bavail) * disk.f_frsize, "hub: ", to.name, " of ", repo_id_,
                " needs ", wanted, " bytes, the disk of ", to.path, " has ", uint64_t(disk.f_bavail) * disk.f_frsize,
                " left");
}

void HubClient::fetch(const HubCache& cache, const std::string& path, const Metadata& file) {
  std::string blob = cache.blob(file.etag);
  Receiving to{path, blob + ".incomplete", -1, 0, file.size, file.etag, {}, meter_};
  to.open_file();
  if (options_.force_download || !to.size || to.have > *to.size) {
    to.restart();  // without a size the checksum cannot go on from bytes that are there
  } else {
    to.catch_up(tick_);
  }
  check_room(to);
  bool damaged = false;
  for (int failures = 0;;) {
    uint64_t before = to.have;
    std::string why = "the connection ended early";
    try {
      if (!to.size || to.have < *to.size || *to.size == 0) receive(to, file);
    } catch (const HttpError& e) {
      why = e.what();
      if (!e.again) throw HubError(HubError::Unreachable, "hub: " + why);
    }
    if (to.size && to.have == *to.size) {
      std::string sum = to.sha ? to.sha->hex() : file.etag;
      if (sum == file.etag) break;
      to.restart();  // an earlier run's bytes may be the damaged ones: once more from the start
      if (damaged)
        refuse_as(HubError::Broken, "hub: ", path, " of ", repo_id_, " arrived twice with the checksum ", sum,
                  " instead of ", file.etag, "; it was not kept. Something between here and ", endpoint_,
                  " changes it");
      damaged = true;
      continue;
    }
    failures = to.have > before ? 0 : failures + 1;
    if (failures > options_.retries)
      refuse_as(HubError::Unreachable, "hub: ", path, " of ", repo_id_, " broke off after ", to.have, " bytes: ", why,
                ". The next download goes on from there");
    wait(failures, nullptr);
  }
  if (fsync(to.fd) != 0) to.fail_errno("sync");
  if (std::rename(to.path.c_str(), blob.c_str()) != 0) to.fail_errno("rename");
}

}  // namespace sf::io
