#include "scaffolding/server/jobs/history.h"

#include <sys/wait.h>

#include "scaffolding/io/test_folder.h"
#include "scaffolding/server/unavailable.h"

namespace sf::server {
namespace {

namespace fs = std::filesystem;

class HistoryTest : public io::TestFolder {
 protected:
  static JobRecord job(const std::string& prompt, const std::string& client = "", const std::string& key = "") {
    JobRecord j{.id = History::new_id(), .client = client, .key = key};
    j.request.prompt = prompt, j.request.model = "m", j.request.options = {{"eta", "0.5"}};
    j.request.loras = {{"style", 0.5, 0.8}};
    j.created = 5;
    return j;
  }
};

TEST_F(HistoryTest, WhatWasAddedIsThereAgain) {
  JobRecord j = job("a red \"apple\"");
  j.request.width = 128, j.request.guidance = 2.5;
  {
    History h(path("d"));
    EXPECT_TRUE(h.add(j).is_new);
    const Picture p = h.add_picture(j, {.place = 0, .seed = 7, .width = 8, .height = 4}, "bytes");
    EXPECT_EQ(bytes_of(h.picture_path(p)), "bytes");
    SF_EXPECT_ERROR(RuntimeError, "another server", History(path("d")));
  }
  History h(path("d"));
  const auto there = h.find(j.id);
  ASSERT_TRUE(there);
  EXPECT_EQ(to_json(there->request), to_json(j.request));
  ASSERT_EQ(there->pictures.size(), 1u);
  EXPECT_EQ(there->pictures[0].seed, 7);
  EXPECT_EQ(h.find_picture(there->pictures[0].id)->job, j.id);
  EXPECT_FALSE(h.find("nothing") || h.find_picture("nothing"));
  EXPECT_EQ(h.secret().size(), 64u);
  EXPECT_EQ(h.secret(), h.secret());
}

TEST_F(HistoryTest, ClipsKeepTheirFrames) {
  const JobRecord j = job("a");
  {
    History h(path("d"));
    h.add(j);
    h.add_picture(j, {.place = 0, .seed = 7, .width = 8, .height = 4, .frames = 9}, "bytes", ".webp");
  }
  const auto pictures = History(path("d")).find(j.id)->pictures;
  ASSERT_EQ(pictures.size(), 1u);
  EXPECT_EQ(pictures[0].frames, 9);
  EXPECT_EQ(pictures[0].file, j.id + "-0.webp");
}

TEST_F(HistoryTest, PicturesComeInPages) {
  History h(path("d"));
  std::vector<std::string> ids;
  for (const char* prompt : {"a red apple", "apples \"and\" pears", "a car"}) {
    JobRecord j = job(prompt, prompt[2] == 'c' ? "anna" : "");
    j.id = "job" + std::to_string(ids.size() / 12);  // in the order of time
    h.add(j);
    for (int64_t place = 0; place < 12; ++place) ids.push_back(h.add_picture(j, {.place = place}, "x").id);
  }
  const auto all = h.pictures({.limit = 20});
  EXPECT_EQ(all.total, 36);
  ASSERT_EQ(all.pictures.size(), 20u);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(all.pictures[i].picture.id, ids[35 - i]);
  EXPECT_EQ(h.pictures({.offset = 30}).pictures.size(), 6u);
  EXPECT_EQ(h.pictures({.offset = 99}).pictures.size(), 0u);
  EXPECT_EQ(h.pictures({.client = "anna"}).total, 12);
  auto found = [&](const char* words) { return h.pictures({.words = words}).total; };
  EXPECT_EQ(found("apple"), 24) << "the last word may be a beginning";
  EXPECT_EQ(found("appl red"), 0) << "the others are whole";
  EXPECT_EQ(found("red appl"), 12);
  EXPECT_EQ(found("\" OR *"), 0);
  h.set_favourite(ids[3], true);
  const auto kept = h.pictures({.favourites = true});
  EXPECT_EQ(kept.total, 1);
  EXPECT_EQ(kept.pictures[0].prompt, "a red apple");
}

TEST_F(HistoryTest, FoldersOfEarlierVersionsAreTakenOver) {
  const std::string to_2 =
      "ALTER TABLE jobs DROP COLUMN owner; ALTER TABLE jobs DROP COLUMN lease; ALTER TABLE jobs DROP COLUMN cancelled; "
      "ALTER TABLE jobs DROP COLUMN seconds; PRAGMA user_version = 2;";
  const std::string to_1 = to_2 + "ALTER TABLE pictures DROP COLUMN frames; PRAGMA user_version = 1;";
  for (const auto& back : {to_2, to_1}) {
    SCOPED_TRACE(back);
    const std::string folder = path(back == to_1 ? "one" : "two");
    const JobRecord j = job("apple");
    {
      History h(folder);
      h.add(j);
      h.add_picture(j, {.place = 0, .seed = 7, .width = 8, .height = 4}, "bytes");
    }
    open_sqlite(folder + "/history.sqlite")->execute(back.c_str());
    for (int again = 0; again < 2; ++again) {
      History h(folder);
      const auto found = h.find(j.id);
      ASSERT_TRUE(found && found->pictures.size() == 1);
      EXPECT_EQ(found->pictures[0].frames, 1);
      EXPECT_TRUE(h.set_state(*found));
    }
    open_sqlite(folder + "/history.sqlite")->execute("PRAGMA user_version = 4;");
    SF_EXPECT_ERROR(RuntimeError, "later version", History(folder));
  }
}

// On any machine, where the server's own test needs a file system that it may fill.
TEST_F(HistoryTest, ADatabaseWithoutRoomIsUnavailable) {
  const auto db = open_sqlite(path("full.sqlite"));
  db->execute("CREATE TABLE t (a TEXT); PRAGMA max_page_count = 4;");
  Statement in = db->prepare("INSERT INTO t VALUES (?)");
  EXPECT_THROW(in.bind(1, std::string(100'000, 'x')).run(), StorageFull);
  EXPECT_THROW(db->execute("INSERT INTO t VALUES (zeroblob(100000))"), StorageFull);
}

TEST_F(HistoryTest, AKeyMakesOneJob) {
  History h(path("d"));
  const JobRecord first = job("a", "anna", "k");
  h.add(first);
  JobRecord again = job("a", "anna", "k");
  again.request.seed = 99;  // drawn anew
  const auto added = h.add(again);
  EXPECT_FALSE(added.is_new);
  EXPECT_EQ(added.job.id, first.id);
  EXPECT_TRUE(h.add(job("a", "bert", "k")).is_new);
  SF_EXPECT_ERROR(ValueError, "another request", h.add(job("b", "anna", "k")));
}

TEST_F(HistoryTest, ListsAreFilteredAndSearched) {
  History h(path("d"));
  const JobRecord a = job("red apple", "anna"), b = job("green apple", "bert"), c = job("a \"fish", "anna");
  for (auto& j : {a, b, c}) h.add(j);
  auto ids = [&](JobFilter f) {
    std::vector<std::string> out;
    for (auto& j : h.list(f)) out.push_back(j.id);
    std::sort(out.begin(), out.end());
    return out;
  };
  auto sorted = [](std::vector<std::string> v) {
    std::sort(v.begin(), v.end());
    return v;
  };
  EXPECT_EQ(ids({}).size(), 3u);
  EXPECT_EQ(ids({.client = "anna"}), sorted({a.id, c.id}));
  EXPECT_EQ(ids({.words = "apple"}), sorted({a.id, b.id}));
  EXPECT_EQ(ids({.client = "anna", .words = "apple red"}), sorted({a.id}));
  EXPECT_EQ(ids({.state = JobState::Done}).size(), 0u);
  EXPECT_EQ(ids({.limit = 2}).size(), 2u);
  // What a stranger writes is no expression of the search.
  for (const char* odd : {"\"", "NEAR(", "apple OR", "a*", "-", "prompt:red", "') --"})
    EXPECT_NO_THROW(ids({.words = odd}));
}

TEST_F(HistoryTest, AfterACrashJobsGoOnAndThoseThatCrashTwiceDoNot) {
  const JobRecord waits = job("waits"), runs = job("runs");
  {
    History h(path("d"));
    h.add(waits);
    JobRecord r = h.add(runs).job;
    r.state = JobState::Running;
    h.set_state(r);
    h.add_picture(r, {.place = 0}, "kept");
    write("d/pictures/half.png", "of a crash");
    write("d/inputs/nobody-image", "of a crash");
  }
  {
    History h(path("d"));
    auto again = h.recover();
    ASSERT_EQ(again.size(), 2u);
    JobRecord r = *h.find(runs.id);
    EXPECT_EQ(r.state, JobState::Waiting);
    EXPECT_EQ(r.crashes, 1);
    EXPECT_EQ(r.pictures.size(), 1u);
    EXPECT_FALSE(fs::exists(path("d/pictures/half.png")) || fs::exists(path("d/inputs/nobody-image")));
    EXPECT_TRUE(fs::exists(h.picture_path(r.pictures[0])));
    r.state = JobState::Running;
    h.set_state(r);
  }
  History h(path("d"));
  ASSERT_EQ(h.recover().size(), 1u);
  EXPECT_EQ(h.find(runs.id)->state, JobState::Failed);
  EXPECT_NE(h.find(runs.id)->error.find("twice"), std::string::npos);
}

TEST_F(HistoryTest, OldPicturesGoAndFavouritesStay) {
  History h(path("d"));
  std::vector<Picture> pictures;
  for (int i = 0; i < 4; ++i) {
    JobRecord j = h.add(job("j")).job;
    j.state = JobState::Done, j.ended = i == 0 ? 10 : 4e9;
    h.set_state(j);
    pictures.push_back(h.add_picture(j, {.place = 0}, std::string(10, 'x')));
    usleep(2000);  // ids are in the order of time
  }
  h.set_favourite(pictures[1].id, true);
  EXPECT_EQ(h.clean({}), 0);
  EXPECT_EQ(h.clean({.days = 1}), 1);
  EXPECT_FALSE(fs::exists(h.picture_path(pictures[0])));
  EXPECT_EQ(h.clean({.pictures = 1}), 1);
  EXPECT_TRUE(h.find_picture(pictures[1].id) && !h.find_picture(pictures[2].id) && h.find_picture(pictures[3].id));
  EXPECT_EQ(h.clean({.bytes = 5}), 1);
  EXPECT_TRUE(h.remove_picture(pictures[1].id));
  EXPECT_FALSE(h.remove_picture(pictures[1].id));
}

TEST_F(HistoryTest, ADamagedDatabaseIsSaidAndNotTouched) {
  { History h(path("d")); }
  const std::string nonsense(8192, 'x');
  write("d/history.sqlite", nonsense);
  EXPECT_THROW(History(path("d")), RuntimeError);
  EXPECT_EQ(bytes_of(path("d/history.sqlite")), nonsense);
  EXPECT_THROW(History(write("file", "x") + "/d"), RuntimeError);
}

TEST_F(HistoryTest, OnlyWhatSaysSoDoesNotWaitForTheDisk) {
  const auto db = open_sqlite(path("a.sqlite"));
  auto waits = [&] {
    Statement s = db->prepare("PRAGMA synchronous");
    return s.step() && s.whole(0) == 2;  // FULL
  };
  using Transaction = Database::Transaction;
  EXPECT_TRUE(waits());
  {
    Transaction soon(*db, Database::OnDisk::Soon);
    EXPECT_FALSE(waits());
    soon.commit();
    EXPECT_TRUE(waits());
  }
  { const Transaction rolled_back(*db, Database::OnDisk::Soon); }
  EXPECT_TRUE(waits());
  {
    const Transaction outer(*db);
    EXPECT_TRUE(waits());
    EXPECT_THROW(Transaction(*db, Database::OnDisk::Soon), RuntimeError);  // SQLite has none within another
  }
  EXPECT_TRUE(waits());
}

TEST_F(HistoryTest, WhatWasAcknowledgedSurvivesKill9) {
  const std::string folder = path("d"), told = path("told");
  const pid_t child = fork();
  if (child == 0) {  // adds until it is killed; an id is told once add() has returned
    History h(folder);
    std::ofstream out(told);
    for (;;) out << h.add(job("j")).job.id << std::endl;
  }
  for (int i = 0; i < 1000 && (!fs::exists(told) || fs::file_size(told) < 2000); ++i) usleep(10'000);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  History h(folder);
  std::ifstream in(told);
  size_t n = 0;
  for (std::string id; std::getline(in, id) && id.size() == 20; ++n) EXPECT_TRUE(h.find(id)) << id;
  EXPECT_GT(n, 50u);
}

}  // namespace
}  // namespace sf::server
