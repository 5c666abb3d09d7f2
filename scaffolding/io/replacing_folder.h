// A folder's new files as one. While a ReplacingFolder lives, whatever this thread writes below the folder as a
// ReplacingFile stays beside its place, and commit() puts all of it there. So a full disk leaves what was there before;
// and the index, without which nothing in the folder is loaded, goes first and comes last, so that what is stopped in
// between refuses to load: old and new files never stand side by side under an index.
// Belongs to the thread that made it. One within another's folder hands its files to that one.
#pragma once
#include <string>
#include <vector>

namespace sf::io {

class ReplacingFolder {
 public:
  // The folder need not be there yet; nothing is made. index: "model_index.json", "config.json".
  ReplacingFolder(const std::string& folder, const std::string& index);
  ~ReplacingFolder();  // without a commit the new files go, and folders that were made for them
  ReplacingFolder(const ReplacingFolder&) = delete;
  ReplacingFolder& operator=(const ReplacingFolder&) = delete;

  void commit();

  // Removes a file that what is written now leaves behind: with the commit of the folder that it lies in, or at once
  // where this thread writes none.
  static void remove(const std::string& path);

 private:
  friend class ReplacingFile;
  // The innermost one of this thread that the path lies in, or null.
  static ReplacingFolder* around(const std::string& path);
  void add(const std::string& temporary, const std::string& path, const std::string& name);
  void swap();

  struct Change {
    std::string temporary, path;  // no temporary: the path is removed
    std::string name;             // the path as it was asked for; links of it are followed in `path`
  };
  std::string folder_;                // absolute
  std::vector<std::string> indexes_;  // its own, then those of folders within it
  std::vector<Change> changes_;       // in the order in which they were written
  bool was_there_, committed_ = false;
  ReplacingFolder* outer_;  // of this thread
};

}  // namespace sf::io
