// CheckpointFolders: output_dir/checkpoint-<step>/, each whole or not there. A checkpoint is written into a folder
// beside, every file is synced, manifest.json lists them with size and checksum, and a rename gives it its name; only
// then are old ones removed.
//   std::string folder = checkpoints.begin(40);  ...write files into it...  checkpoints.commit(40);
// One thread at a time, one run per output_dir. RuntimeError where the disk does not allow it,
// ValueError for damaged files.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sf::train {

class CheckpointFolders {
 public:
  // Makes output_dir; RuntimeError where it cannot be written to. total_limit: how many are kept; without one, all.
  explicit CheckpointFolders(const std::string& output_dir, std::optional<int64_t> total_limit = {});

  std::vector<int64_t> steps() const;  // ascending
  std::string path(int64_t step) const;
  void clean() const;  // removes what runs that were killed left half written

  std::string begin(int64_t step);   // the folder to write into
  std::string commit(int64_t step);  // the checkpoint
  // Removes what is older than a checkpoint and too many with it: commit() does, and whoever goes on from one of which
  // the run was killed before that.
  void keep_to_limit(int64_t step) const;
  void abandon(int64_t step) noexcept;
  // The sentence for a checkpoint that could not be written.
  std::string failure(int64_t step, const std::string& reason) const;

  struct Found {
    std::string path;
    std::vector<std::string> damaged;  // what is wrong with the newer ones that were passed over
  };
  // The checkpoint to go on from. "latest": the newest that is whole, none where there are no checkpoints; else a path,
  // or a name in output_dir, which must be whole and the newest there. Empty: none,
  // and ValueError where there are some already.
  std::optional<Found> find(const std::string& resume) const;

 private:
  std::string temporary(int64_t step) const;
  std::string output_dir_;
  std::optional<int64_t> total_limit_;
};

// ValueError naming the first file that is missing, cut short or changed.
void verify_checkpoint(const std::string& folder);

}  // namespace sf::train
