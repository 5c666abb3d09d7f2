#include "scaffolding/distributed/store.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "scaffolding/distributed/file_store.h"
#include "scaffolding/distributed/rendezvous.h"
#include "scaffolding/distributed/store_protocol.h"
#include "scaffolding/distributed/tcp_store.h"
#include "scaffolding/io/test_folder.h"

namespace sf::distributed {
namespace {

class StoreFiles : public io::TestFolder {};

// prefix: of keys in messages
void check_store(Store& a, Store& b, const std::string& prefix = "") {
  a.set("key", std::string("v\0w", 3));
  EXPECT_EQ(b.get("key"), std::string("v\0w", 3));
  EXPECT_EQ(a.add("n", 5), 5);
  EXPECT_EQ(b.add("n", -7), -2);
  EXPECT_EQ(a.get("n"), "-2");
  EXPECT_EQ(a.compare_set("c", "", "first"), "first");
  EXPECT_EQ(b.compare_set("c", "", "second"), "first");
  EXPECT_EQ(b.compare_set("c", "first", "third"), "third");
  EXPECT_EQ(b.compare_set("nothing", "expected", "x"), "expected");
  EXPECT_TRUE(a.check({"key", "c"}));
  EXPECT_FALSE(a.check({"key", "absent"}));
  a.append("key", "x");
  EXPECT_EQ(b.get("key"), std::string("v\0wx", 4));
  EXPECT_EQ(a.num_keys(), 3);
  EXPECT_TRUE(a.delete_key("c"));
  EXPECT_FALSE(b.delete_key("c"));
  std::string absent = "'" + prefix + "absent'";
  SF_EXPECT_ERROR(RuntimeError, absent + ", '" + prefix + "b' did not come within 0.05 s",
                  a.wait({"absent", "b"}, 0.05));
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    b.set("one", ""), b.add("two", 1);
  });
  a.wait({"one", "two"}, 30);
  b.set_timeout(0.05);
  SF_EXPECT_ERROR(RuntimeError, absent + " did not come", b.get("absent"));
  SF_EXPECT_ERROR(ValueError, "timeout must be positive", a.wait({"x"}, 0));
}

TEST(Store, OfAllKindsDoTheSame) {
  HashStore hash;
  check_store(hash, hash);
  auto shared = std::make_shared<HashStore>();
  PrefixStore first("p", shared), same("p", shared), other("q", shared);
  check_store(first, same, "p/");
  EXPECT_FALSE(other.check({"key"}));
  TCPStore server({.port = 0, .is_server = true}), client({.port = server.port()});
  check_store(server, client);
}

TEST_F(StoreFiles, DoTheSameAndGoWithTheLast) {
  {
    FileStore a(path("store"), 2), b(path("store"), 2);
    check_store(a, b);
  }
  EXPECT_EQ(files(), 0u);
}

TEST(Store, CountsOfManyThreads) {
  TCPStore server({.port = 0, .is_server = true});
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      TCPStore client({.port = server.port()});
      for (int i = 0; i < 200; ++i) client.add("n", 1);
      client.wait({"go"}, 60);
    });
  while (server.add("n", 0) < 1600) std::this_thread::yield();
  server.set("go", "");
  threads.clear();
  EXPECT_EQ(server.get("n"), "1600");
}

TEST(Store, WaitsForItsClients) {
  TCPStore probe({.port = 0, .is_server = true});
  SF_EXPECT_ERROR(RuntimeError, "cannot listen; does another process use it?",
                  TCPStore({.port = probe.port(), .is_server = true}));
  SF_EXPECT_ERROR(RuntimeError, "1 of 2 processes came within 0.2 s",
                  TCPStore({.port = 0, .is_server = true, .world_size = 2, .timeout_seconds = 0.2}));
  SF_EXPECT_ERROR(RuntimeError, "nobody answers", TCPStore({.port = 1, .timeout_seconds = 0.2}));
  SF_EXPECT_ERROR(ValueError, "port must be 1 to 65535, got 70000", TCPStore({.port = 70000}));
  Listener mute(0);  // takes connections and says nothing
  SF_EXPECT_ERROR(RuntimeError, "does another program listen there?",
                  TCPStore({.port = mute.port(), .timeout_seconds = 0.2}));
}

TEST(Store, GarbageOnItsPortIsDropped) {
  TCPStore server({.port = 0, .is_server = true});
  server.set("key", "value");
  std::mt19937 random(7);
  for (int i = 0; i < 50; ++i) {
    Socket s = Socket::connect("127.0.0.1", server.port(), in_seconds(10));
    std::string bytes(1 + random() % 200, 0);
    for (char& c : bytes) c = char(random());
    if (i % 2) {  // after a greeting
      std::string greeting(1, char(Query::Validate));
      put<uint32_t>(greeting, kStoreMagic);
      bytes = greeting + bytes;
    }
    s.send(bytes.data(), bytes.size(), in_seconds(10));
  }
  EXPECT_EQ(server.get("key"), "value");
}

TEST(StoreProtocol, RefusesSizesThatCannotBe) {
  StoreProtocol p;
  std::string greeting(1, char(Query::Validate));
  put<uint32_t>(greeting, kStoreMagic);
  auto accepts = [&](const std::string& message) {
    static int client = 0;
    p.connect(++client);
    std::string all = greeting + message;
    bool ok = true;
    for (char c : all) ok = ok && p.receive(client, &c, 1);  // in the smallest pieces
    return ok;
  };
  auto with = [](Query q, uint64_t n) {
    std::string m(1, char(q));
    put<uint64_t>(m, n);
    return m;
  };
  EXPECT_TRUE(accepts(""));
  EXPECT_FALSE(accepts(std::string(1, char(19))));
  EXPECT_FALSE(accepts(with(Query::Get, 1 << 20)));
  EXPECT_FALSE(accepts(with(Query::Get, ~uint64_t(0))));
  EXPECT_FALSE(accepts(with(Query::Wait, 1 << 20)));
  std::string set = with(Query::Set, 1) + "k";
  put<uint64_t>(set, uint64_t(1) << 40);
  EXPECT_FALSE(accepts(set));
  EXPECT_FALSE(accepts(greeting));  // twice
  int wrong = 1000;
  p.connect(wrong);
  EXPECT_FALSE(p.receive(wrong, "GET / HTTP/1.1\r\n", 16));
}

TEST_F(StoreFiles, KeepWhatAProcessDidNotFinish) {
  std::string file = path("store");
  FileStore a(file);
  a.set("key", "value");
  std::ofstream(file, std::ios::app | std::ios::binary).write("1SFS\x04\0\0", 7);  // the beginning of a record
  FileStore b(file);
  b.set("next", "1");
  EXPECT_EQ(a.get("next"), "1");
  EXPECT_EQ(a.get("key"), "value");
  std::ofstream(file, std::ios::app | std::ios::binary) << "this is no record of a store";
  SF_EXPECT_ERROR(RuntimeError, "is no file of a store", a.get("next"));
  SF_EXPECT_ERROR(RuntimeError, "cannot be opened", FileStore(path("absent/store")));
}

TEST(Rendezvous, ReadsSlurmsLists) {
  EXPECT_EQ(first_node("node7"), "node7");
  EXPECT_EQ(first_node("a1,a2"), "a1");
  EXPECT_EQ(first_node("node[07-09,12],login1"), "node07");
  EXPECT_EQ(first_node("rack[2,5]-x,b"), "rack2-x");
  SF_EXPECT_ERROR(ValueError, "is no list of Slurm's nodes", first_node("node[1"));
}

TEST(Rendezvous, RefusesMethodsThatAreNone) {
  SF_EXPECT_ERROR(ValueError, "init_method must be", rendezvous("http://x", 0, 1));
  SF_EXPECT_ERROR(ValueError, "init_method must be", rendezvous("tcp://", 0, 1));
  SF_EXPECT_ERROR(ValueError, "must be a number from 1 on, got '0'", rendezvous("tcp://a:0", 0, 1));
  SF_EXPECT_ERROR(ValueError, "rank must be 0 to 1, got 2", rendezvous("tcp://a:1", 2, 2));
}

}  // namespace
}  // namespace sf::distributed
