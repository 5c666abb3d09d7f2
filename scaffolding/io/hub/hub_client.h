// HubClient: what is asked of a hub's server about one repository, and the bytes of its files. hub.cpp decides when.
// One thread; several clients may share a Meter.
#pragma once
#include <atomic>

#include "scaffolding/io/hub/http.h"
#include "scaffolding/io/hub/hub.h"

namespace sf::io {

// Counts over all threads of a download.
struct Meter {
  std::atomic<uint64_t> done{0}, total{0};
  std::atomic<size_t> files{0};
  std::atomic<bool> stop{false};
};

// The answer to api/models/<id>/revision/<revision>. HubError Broken for what is no such thing, ValueError for names
// that are no paths in a repository.
RepoListing parse_repo_listing(const std::string& body, const std::string& whose);

class HubClient {
 public:
  HubClient(const std::string& repo_id, const HubOptions& options, Meter& meter, std::function<void()> tick);

  struct Metadata {
    std::string commit, etag, url;  // where the bytes are asked for
    std::optional<uint64_t> size;
  };
  // Errors are HubErrors. Missing files are noted in the cache, as huggingface_hub does.
  Metadata metadata(const HubCache& cache, const std::string& path, const std::string& revision, int retries);
  RepoListing listing(const std::string& revision, int retries);
  // Into blobs/<etag>, by way of <etag>.incomplete. The caller holds the lock.
  void fetch(const HubCache& cache, const std::string& path, const Metadata& file);

 private:
  std::string redirected(const std::string& target) const;
  std::string without_network(const std::string& why) const;
  HttpResponse ask(const std::string& method, std::string url, int retries, bool stay);
  std::vector<std::string> headers_for(const std::string& url) const;
  bool trusted(const std::string& url) const;
  void wait(int failures, const HttpResponse* answer);
  [[noreturn]] void refuse(const HttpResponse& answer, const std::string& what) const;
  struct Receiving;
  void receive(Receiving& to, const Metadata& file);
  void check_room(const Receiving& to) const;

  std::string repo_id_, endpoint_, token_;
  const HubOptions& options_;
  Meter& meter_;
  std::function<void()> tick_;
  Http http_;
};

}  // namespace sf::io
