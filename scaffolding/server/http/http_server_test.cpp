#include "scaffolding/server/http/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace sf::server {
namespace {

// A client that says what it is told to, byte by byte.
class Socket {
 public:
  explicit Socket(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET, to.sin_port = htons(port), to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  ~Socket() { close(); }
  void say(const std::string& text) {
    EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL), ssize_t(text.size()));
  }
  // What comes until the server closes, or `until` was read, for at most five seconds.
  std::string hear(const std::string& until = "") {
    std::string out;
    char buffer[4096];
    pollfd wait{fd_, POLLIN, 0};
    while ((until.empty() || out.find(until) == out.npos) && ::poll(&wait, 1, 5000) > 0) {
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      out.append(buffer, size_t(n));
    }
    return out;
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

template <class F> bool soon(const F& f) {
  for (int i = 0; i < 500 && !f(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return f();
}

class HttpServerTest : public testing::Test {
 protected:
  void start(HttpLimits limits = {}) {
    HttpCallbacks c;
    c.refuse = [](const Request& head) -> std::optional<Response> {
      if (head.path == "/refused") return Response{.status = 401, .body = "no"};
      return {};
    };
    c.handle = [this](std::shared_ptr<const Request> r, Answer a) {
      if (r->path == "/wait") {
        a->on_leave([this] { ++left; });
        std::lock_guard lock(mutex);
        waiting.push_back(a);
      } else if (r->path == "/events") {
        a->begin_events();
        for (int i = 0; i < 3; ++i) a->send("data: " + std::to_string(i) + "\n\n");
        a->end();
      } else if (r->path == "/dropped") {
      } else {
        a->respond({.body = r->method + " " + r->path + " " + std::to_string(r->body.size())});
      }
    };
    c.malformed = [](int status, const std::string& m) { return Response{.status = status, .body = m}; };
    server.emplace("127.0.0.1", uint16_t(0), limits, std::move(c));
    server->start();
  }
  Socket client() { return Socket(server->port()); }
  void TearDown() override {
    waiting.clear();
    server.reset();
  }
  std::atomic<int> left{0};
  std::mutex mutex;
  std::vector<Answer> waiting;
  std::optional<HttpServer> server;
};

const std::string kEnd = "Host: x\r\nConnection: close\r\n\r\n";

TEST_F(HttpServerTest, AnswersOneAfterTheOtherOnOneConnection) {
  start();
  Socket c = client();
  c.say("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /b%20c?d HTTP/1.1\r\n" + kEnd);
  const std::string heard = c.hear();
  EXPECT_NE(heard.find("POST /a 3"), std::string::npos) << heard;
  EXPECT_NE(heard.find("GET /b c 0"), std::string::npos) << heard;
}

TEST_F(HttpServerTest, HeadHasNoBodyAndEventsAreChunks) {
  start();
  Socket head = client();
  head.say("HEAD /abc HTTP/1.1\r\n" + kEnd);
  const std::string heard = head.hear();
  EXPECT_TRUE(heard.ends_with("\r\n\r\n")) << heard;
  EXPECT_NE(heard.find("Content-Length: 11"), std::string::npos) << heard;
  Socket events = client();
  events.say("GET /events HTTP/1.1\r\n" + kEnd);
  const std::string all = events.hear();
  EXPECT_NE(all.find("data: 0\n\n"), std::string::npos) << all;
  EXPECT_TRUE(all.ends_with("\r\n0\r\n\r\n")) << all;
}

TEST_F(HttpServerTest, WhatIsNoRequestIsRefused) {
  start({.header_bytes = 1000, .body_bytes = 1000});
  const std::pair<std::string, const char*> kCases[] = {
      {"hello\r\n\r\n", " 400 "},
      {"GET / HTTP/1.1\r\nA: " + std::string(2000, 'b') + "\r\n\r\n", " 431 "},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n", " 413 "},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", " 400 "},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", " 400 "},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", " 400 "},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", " 400 "},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + std::string(2000, 'a') +
           "\r\n0\r\n\r\n",
       " 413 "},
      {"GET /%ff HTTP/1.1\r\n" + kEnd, " 400 "},
      {"GET http://other/ HTTP/1.1\r\n" + kEnd, " 400 "},
      {"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n", " 401 "}};
  for (auto& [said, status] : kCases) {
    Socket c = client();
    c.say(said);
    const std::string heard = c.hear();
    EXPECT_NE(heard.substr(0, 20).find(status), std::string::npos) << said.substr(0, 100) << "\n" << heard;
  }
  Socket c = client();
  c.say("GET /still HTTP/1.1\r\n" + kEnd);
  EXPECT_NE(c.hear().find("GET /still"), std::string::npos);
}

TEST_F(HttpServerTest, AskedForContinueItContinues) {
  start();
  Socket c = client();
  c.say("POST /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_NE(c.hear("\r\n\r\n").find("100 Continue"), std::string::npos);
  c.say("abc");
  EXPECT_NE(c.hear().find("POST /a 3"), std::string::npos);
}

TEST_F(HttpServerTest, ALeavingClientIsNoticedWhileItsAnswerIsMade) {
  start();
  Socket c = client(), stays = client();
  c.say("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  stays.say("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  auto both = [&] {
    std::lock_guard lock(mutex);
    return waiting.size() == 2;
  };
  ASSERT_TRUE(soon(both));
  const auto begin = std::chrono::steady_clock::now();
  c.close();
  EXPECT_TRUE(soon([&] { return left == 1; }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1000));
  EXPECT_EQ(int(waiting[0]->has_left()) + int(waiting[1]->has_left()), 1);
  for (auto& a : waiting) a->respond({.body = "late"});
  EXPECT_NE(stays.hear("late").find("late"), std::string::npos);
  EXPECT_EQ(left, 1);
}

TEST_F(HttpServerTest, ADroppedAnswerIsAnError) {
  start();
  Socket c = client();
  c.say("GET /dropped HTTP/1.1\r\n" + kEnd);
  EXPECT_NE(c.hear().find(" 500 "), std::string::npos);
}

TEST_F(HttpServerTest, DeadlinesCoverWholeRequests) {
  start({.request = std::chrono::seconds(1), .idle = std::chrono::seconds(1)});
  const auto begin = std::chrono::steady_clock::now();
  Socket slow = client(), silent = client();
  slow.say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n");
  std::thread drip([&] {
    for (int i = 0; i < 30; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      slow.say("a");
      if (std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(900)) break;
    }
  });
  EXPECT_EQ(slow.hear(), "");  // closed, as the one that says nothing
  EXPECT_EQ(silent.hear(), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  drip.join();
}

TEST_F(HttpServerTest, BodiesTogetherHaveALimit) {
  start({.body_bytes = 1000, .bodies_bytes = 1500});
  Socket first = client(), second = client();
  first.say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n");
  ASSERT_TRUE(soon([&] { return server->bodies_bytes() == 900; }));
  second.say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n");
  EXPECT_NE(second.hear().find(" 503 "), std::string::npos);
  first.say(std::string(900, 'a'));
  EXPECT_NE(first.hear("POST / 900").find("POST / 900"), std::string::npos);
  EXPECT_TRUE(soon([&] { return server->bodies_bytes() == 0; }));
}

}  // namespace
}  // namespace sf::server
