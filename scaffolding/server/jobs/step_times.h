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
  // a second, fewer where that is as good. Counts that were not timed lately are tried, as long as more pays so far.
  size_t best(const std::string& kind, const std::vector<int64_t>& rows, double now) const;
  // Seconds of a call with so many rows; below 0: not known.
  double seconds(const std::string& kind, int64_t rows, double now) const;

 private:
  static constexpr double kForgotten = 600;  // seconds: other work of the machine passes
  static constexpr double kGain = 1.02;      // by which more pictures at a time have to be quicker
  static constexpr size_t kSamples = 8;
  struct Sample {
    double seconds, at;
  };
  struct Times {
    bool is_first = true;
    std::deque<Sample> samples;  // the last ones
  };
  std::map<std::string, std::map<int64_t, Times>> times_;  // by kind, of which there are few, and rows
};

}  // namespace sf::server
