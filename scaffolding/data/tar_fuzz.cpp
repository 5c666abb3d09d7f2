#include <unistd.h>

#include <cstdlib>

#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/data/tar.h"

// Archives are read in place, from a file: the bytes go through one without a name.
SF_FUZZ_TARGET(tar) {
  char path[] = "/tmp/sf_tar_fuzz_XXXXXX";
  struct File {
    int fd;
    const char* path;
    ~File() {
      close(fd);
      unlink(path);
    }
  } file{mkstemp(path), path};
  SF_CHECK_AS(RuntimeError, file.fd >= 0 && write(file.fd, data, size) == ssize_t(size),
              "tar_fuzz: cannot write to /tmp");
  sf::data::TarFile tar(path);
  for (auto& m : tar.members()) tar.read(m);
}
