#include "scaffolding/server/jobs/job_queue.h"

#include <gtest/gtest.h>

namespace sf::server {
namespace {

std::string order(JobQueue& q, double now) {
  std::string out;
  while (auto next = q.pop(now)) out += next->id;
  return out;
}

TEST(JobQueue, MoreUrgentFirstThenInOrder) {
  JobQueue q;
  q.push("a", "", Priority::Normal, 0), q.push("b", "", Priority::Low, 0), q.push("c", "", Priority::High, 1);
  q.push("d", "", Priority::Normal, 1);
  EXPECT_EQ(q.place_of("d", 1), 2u);
  EXPECT_FALSE(q.place_of("none", 1));
  q.set_priority("b", Priority::High);
  EXPECT_EQ(order(q, 1), "bcad");
}

TEST(JobQueue, WaitingMakesUrgent) {
  JobQueue q({.ageing = 10});
  q.push("old", "", Priority::Low, 0);
  q.push("new", "", Priority::Normal, 25);
  EXPECT_EQ(q.best(9)->id, "new");
  EXPECT_EQ(q.best(30)->id, "old");  // three stages up against none
}

TEST(JobQueue, WhoWasServedLeastComesFirst) {
  JobQueue q({.forgetting = 100});
  q.count_served("a", 50, 0);
  q.push("1", "a", Priority::Normal, 0), q.push("2", "b", Priority::Normal, 1), q.push("3", "a", Priority::Normal, 1);
  EXPECT_EQ(order(q, 1), "213");
  // Alternately, as each is counted.
  for (const char* id : {"1", "2", "3"}) q.push(std::string("a") + id, "a", Priority::Normal, 0);
  for (const char* id : {"1", "2", "3"}) q.push(std::string("b") + id, "b", Priority::Normal, 0);
  std::string clients;
  for (int i = 0; i < 6; ++i) {
    const auto next = q.pop(1000);
    q.count_served(next->client, 10, 1000);
    clients += next->client;
  }
  EXPECT_EQ(clients.substr(0, 1), "b");  // a's 50 seconds of long ago count a little
  EXPECT_EQ(std::count(clients.begin(), clients.begin() + 4, 'a'), 2);
}

TEST(JobQueue, FullAndRemoved) {
  JobQueue q({.jobs = 2});
  q.push("a", "", Priority::Normal, 0), q.push("b", "", Priority::Normal, 0);
  EXPECT_TRUE(q.is_full());
  EXPECT_TRUE(q.remove("a"));
  EXPECT_FALSE(q.remove("a"));
  EXPECT_EQ(order(q, 0), "b");
}

TEST(JobQueue, ServesClientsInTurnsWhileTheirJobsRun) {
  JobQueue queue;
  for (const char* client : {"a", "b", "c"})
    for (int i = 0; i < 3; ++i) queue.push(std::string(client) + std::to_string(i), client, Priority::Normal, 0);
  std::string order;
  for (int i = 0; i < 6; ++i) {
    const auto job = queue.pop(0);
    queue.begin_serving(job->client);
    order += job->client;
  }
  EXPECT_EQ(order, "abcabc");
  for (const char* client : {"a", "b", "c"}) queue.count_served(client, 1, 0);
  queue.count_served("c", 0.1, 0);  // a small one
  EXPECT_EQ(queue.pop(0)->client, "c");
}

}  // namespace
}  // namespace sf::server
