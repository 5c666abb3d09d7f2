// What the server remembers: a folder with a database of jobs, the pictures beside it and the pictures that jobs begin
// with. What it has acknowledged survives a crash at any point. Locked: any thread may call.
// Several servers have one history in PostgreSQL, files included: a picture is there exactly where its row is, whoever
// asks, and machines need no folder that all of them see. A job that runs is its server's for as long as a lease; what
// does not answer now is Unavailable, a full disk too.
#pragma once
#include <mutex>

#include "scaffolding/server/jobs/database.h"
#include "scaffolding/server/jobs/job.h"
#include "scaffolding/server/jobs/preview.h"

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
  // database: postgresql://..., shared with other servers; "": SQLite in the folder. lease: seconds after which the
  // jobs of a server that is not heard of are others'.
  explicit History(const std::string& folder, const std::string& database = "", double lease = 15);
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
  // With its times and error. False, and nothing is written, where it is over or another server's by now.
  bool set_state(const JobRecord& job);
  // One that waits is this server's, and runs. False where it does not wait any more.
  bool claim(JobRecord& job);
  void set_priority(const std::string& id, Priority priority);

  // Written beside, renamed, then recorded: afterwards it is there for good. Of a job that is over, as it is with this
  // picture, that is recorded with it. LeaseLost where the job is not this server's any more.
  struct LeaseLost : RuntimeError {
    using RuntimeError::RuntimeError;
  };
  Picture add_picture(const JobRecord& job, Picture picture, const std::string& bytes,
                      const std::string& suffix = ".png");
  // Where a file may be for a while, without its suffix: after a crash it is removed.
  std::string scratch_path(const JobRecord& job, int64_t place) const {
    return folder_ + "/pictures/" + job.id + "-" + std::to_string(place) + ".part";
  }
  // The bytes of a picture that a job begins with; "image" or "mask". Before the job is added.
  std::string add_input(const std::string& job, const char* what, std::string_view bytes);
  std::string input_bytes(const std::string& file) const;                  // RuntimeError where it is gone
  std::optional<std::string> picture_bytes(const Picture& picture) const;  // absent where it is gone
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

  // Of a history that several servers have (history_sharing.cpp).
  bool is_shared() const { return !server_.empty(); }
  double lease() const { return lease_; }
  const std::string& server() const { return server_; }  // an id of this process; "" where it is alone
  // This server's leases begin anew. take_over: jobs of those that ran out wait again, or have failed, as after a
  // crash. How many did.
  int64_t keep_leases(bool take_over);
  struct Sketch {
    std::string id, owner;  // "" of one that waits
    JobState state;
    Priority priority;
    bool cancelled;
  };
  std::vector<Sketch> active() const;  // that wait or run anywhere, the oldest first
  // Cancelled where it waits; where it runs, its server is asked to. The state in which it was found; Done, Failed or
  // Cancelled: nothing was changed.
  JobState ask_to_cancel(const std::string& id);
  void save_preview(const std::string& job, const std::string& png);
  PreviewPointer preview(const std::string& job) const;
  void notify(const std::vector<std::string>& messages);  // to all servers, this one too
  // What came, at once or until `seconds` have passed or the file descriptor `wake` can be read. One thread's alone.
  std::vector<std::string> wait(double seconds, int wake);

 private:
  JobRecord read(Statement& row) const;
  bool write_state(const JobRecord& job);  // with the mutex
  bool claim_row(JobRecord& job);          // of one that several servers have; with the mutex
  void recover_files();
  void write_file(const std::string& name, std::string_view bytes) const;  // "/inputs/...", in the folder
  void put_file(const std::string& name, std::string_view bytes);          // with the mutex; of a shared history
  std::optional<std::string> file(const char* folder, const std::string& name) const;
  std::vector<Picture> pictures_of(const std::string& job) const;
  std::string folder_;
  std::string server_;
  double lease_;
  int lock_ = -1;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Database> db_;
  std::unique_ptr<Database> listener_;  // of the thread that waits
};

}  // namespace sf::server
