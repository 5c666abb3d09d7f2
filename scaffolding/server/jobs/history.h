// What the server remembers: a folder with a database of jobs, the pictures beside it and the pictures that jobs begin
// with. What it has acknowledged survives a crash at any point. Locked: any thread may call.
#pragma once
#include <mutex>

#include "scaffolding/server/jobs/database.h"
#include "scaffolding/server/jobs/job.h"

namespace sf::server {

struct JobFilter {
  std::optional<std::string> client;  // absent: everybody's
  std::optional<JobState> state;
  std::string words;   // in prompts, all of them; "" does not matter
  std::string before;  // an id: those that were made before it
  int64_t limit = 50;
};

// The gallery's: pictures one after the other, whatever jobs they are of.
struct PictureFilter {
  std::optional<std::string> client;
  std::string words;  // in prompts, as JobFilter has them; the last one may be a beginning
  bool favourites = false;
  int64_t offset = 0, limit = 100;
};

struct Retention {
  double days = 0;                  // 0: for ever
  int64_t pictures = 0, bytes = 0;  // 0: as many as there are
};

class History {
 public:
  // The folder is made where it is not there. RuntimeError where another server has it, or its database is damaged.
  explicit History(const std::string& folder);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // A job is added once it is on the disk. One of this client with this key that is there already comes back instead.
  // ValueError where that one was another request.
  struct Added {
    JobRecord job;
    bool is_new = true;
  };
  Added add(JobRecord job);
  void set_state(const JobRecord& job);  // with its times and error
  void set_priority(const std::string& id, Priority priority);

  // Written beside, renamed, then recorded: afterwards it is there for good.
  Picture add_picture(const JobRecord& job, Picture picture, const std::string& bytes,
                      const std::string& suffix = ".png");
  // Where a file may be for a while, without its suffix: after a crash it is removed.
  std::string scratch_path(const JobRecord& job, int64_t place) const {
    return folder_ + "/pictures/" + job.id + "-" + std::to_string(place) + ".part";
  }
  // The bytes of a picture that a job begins with; "image" or "mask". Before the job is added.
  std::string add_input(const std::string& job, const char* what, std::string_view bytes);
  std::string input_path(const std::string& file) const { return folder_ + "/inputs/" + file; }
  std::string picture_path(const Picture& picture) const { return folder_ + "/pictures/" + picture.file; }

  std::optional<JobRecord> find(const std::string& id) const;
  std::optional<JobRecord> find_key(const std::string& client, const std::string& key) const;
  std::vector<JobRecord> list(const JobFilter& filter) const;  // the newest first
  struct Found {
    Picture picture;
    std::string client, job;
  };
  struct Shown {
    Picture picture;
    std::string job, prompt;  // its first 300 letters
    double created = 0;
  };
  struct Page {
    int64_t total = 0;  // of all that the filter lets through
    std::vector<Shown> pictures;
  };
  Page pictures(const PictureFilter& filter) const;  // the newest first
  std::optional<Found> find_picture(const std::string& id) const;
  void set_favourite(const std::string& id, bool favourite);
  bool remove_picture(const std::string& id);

  // After a start: what ran waits again, and what ran at two crashes has failed. Those that wait now, the oldest first.
  // Files that nothing records are removed.
  std::vector<JobRecord> recover();
  // Jobs that are over and beyond what is kept go, with their pictures; never favourites. How many pictures went.
  int64_t clean(const Retention& retention);

  std::string secret() const;   // 32 random bytes in hexadecimal digits, of this folder
  void check() const;           // RuntimeError where the database does not answer
  static std::string new_id();  // 20 letters and digits, in the order of time

 private:
  JobRecord read(Statement& row) const;
  std::vector<Picture> pictures_of(const std::string& job) const;
  std::string folder_;
  int lock_ = -1;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Database> db_;
};

}  // namespace sf::server
