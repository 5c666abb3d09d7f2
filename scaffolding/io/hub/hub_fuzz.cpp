#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/io/hub/hub_client.h"

// What a server says a repository holds: names that become paths.
SF_FUZZ_TARGET(repo_listing) {
  auto listing = sf::io::parse_repo_listing({reinterpret_cast<const char*>(data), size}, "fuzz");
  SF_CHECK_AS(RuntimeError, sf::io::is_commit(listing.commit), "internal: a commit got through");
  for (auto& f : listing.files)
    SF_CHECK_AS(RuntimeError, f.path.find("..") != 0 && f.path.find("/../") == std::string::npos && f.path[0] != '/',
                "internal: a path got through");
}
