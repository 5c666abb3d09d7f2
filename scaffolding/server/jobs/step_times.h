// How long a step takes with so many samples in its call, and so how many pictures of a kind are best drawn at a time.
// One thread's.
#pragma once
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace sf::server {

class StepTimes {
 public:
  // A call of so many rows took so long; `now` in seconds. The first of a row's count is passed over: what is made of
  // the text, and memory, come with it.
  void measured(const std::string& kind, int64_t rows, double seconds, double now);
  // Of pictures with so many rows each, how many of the first ones a call shall have: those that give the most pictures
  // a second, fewer where that is as good. Twice as many as before are tried until they are far slower than the best.
  size_t best(const std::string& kind, const std::vector<int64_t>& rows, double now) const;
  // Seconds of a call with so many rows, or between those of fewer and of more; below 0: not known.
  double seconds(const std::string& kind, int64_t rows, double now) const;

 private:
  static constexpr double kForgotten = 600;  // seconds: other work of the machine passes
  static constexpr int64_t kCalls = 300;     // of a kind: more rows that were slow beside other work are tried again
  static constexpr double kGain = 1.02;      // by which more pictures at a time have to be quicker
  static constexpr double kHope = 0.8;       // of the best rate: less, and more pictures at a time are not tried
  static constexpr size_t kSamples = 8;      // the last ones are kept
  static constexpr size_t kEnough = 3;       // one alone may have been the machine's other work
  struct Sample {
    double seconds, at;
    int64_t call;
  };
  struct Times {
    bool is_first = true;
    std::deque<Sample> samples;
  };
  struct Least {
    double seconds = -1;  // below 0: not known
    size_t samples = 0;
  };
  struct Kind {
    int64_t calls = 0, last_rows = 0;
    std::map<int64_t, Times> by_rows;
  };
  static Least least(const Kind& kind, int64_t rows, const Times& times, double now);
  Least near(const std::string& kind, int64_t rows, double now) const;  // without samples: between others
  std::map<std::string, Kind> times_;                                   // of which there are few
};

}  // namespace sf::server
