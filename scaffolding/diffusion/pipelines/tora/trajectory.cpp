#include "scaffolding/diffusion/pipelines/tora/trajectory.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/io/file.h"

namespace sf::diffusion {

namespace {

constexpr std::string_view kSpaces = " \t\n\v\f\r";
constexpr size_t kShown = 40;  // characters of a line that an error repeats

// The file is anybody's: what cannot be shown is a question mark.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, std::min(text.find_first_of("\n\r"), kShown)));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

// One trajectory's points, taken off the front of a text up to ";".
class PointReader {
 public:
  PointReader(std::string_view text, const std::string& who) : rest_(text), who_(who) {}

  Trajectory trajectory() {
    Trajectory out;
    for (skip_spaces(); !rest_.empty() && rest_[0] != ';'; skip_spaces()) {
      SF_CHECK(out.size() < kMostTrajectoryPoints, who_, ": a trajectory has at most ", kMostTrajectoryPoints,
               " points");
      const std::string_view from = rest_;
      TrajectoryPoint p;
      const bool whole = number(p.x) && take(',') && number(p.y) && ends_here();
      SF_CHECK(whole, who_, ": point ", out.size() + 1, " must be two numbers, as in 10,54, got '", shown(from), "'");
      out.push_back(p);
    }
    return out;
  }
  bool next() { return take(';'); }

 private:
  void skip_spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(kSpaces), rest_.size())); }
  bool take(char c) {
    skip_spaces();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool number(double& out) {
    skip_spaces();
    auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), out);
    if (error != std::errc() || !std::isfinite(out)) return false;
    rest_.remove_prefix(size_t(end - rest_.data()));
    return true;
  }
  bool ends_here() const { return rest_.empty() || rest_[0] == ';' || kSpaces.find(rest_[0]) != kSpaces.npos; }

  std::string_view rest_;
  const std::string& who_;
};

void check_canvas(const Canvas& c) {
  SF_CHECK(c.width >= 1 && c.height >= 1 && c.width <= kMostFrameSide && c.height <= kMostFrameSide,
           "trajectory: the canvas must be 1 to ", kMostFrameSide, " wide and high, got ", c.width, "x", c.height);
}

// who: "trajectory 2"
void check_points(const std::string& who, const Trajectory& t, const Canvas& canvas) {
  SF_CHECK(!t.empty(), who, ": has no points; it needs at least 2");
  SF_CHECK(t.size() >= 2, who, ": needs at least 2 points, got 1; for something that stays, give its point twice");
  SF_CHECK(t.size() <= kMostTrajectoryPoints, who, ": has ", t.size(), " points, at most ", kMostTrajectoryPoints);
  for (size_t i = 0; i < t.size(); ++i) {
    const auto [x, y] = t[i];
    SF_CHECK(std::isfinite(x) && std::isfinite(y), who, ": point ", i + 1, " must be finite, got (", x, ", ", y, ")");
    SF_CHECK(x >= 0 && y >= 0 && x <= double(canvas.width) && y <= double(canvas.height), who, ": point ", i + 1, " (",
             x, ", ", y, ") lies outside the canvas of ", canvas.width, "x", canvas.height);
  }
}

void check_frames(int64_t num_frames) {
  SF_CHECK(num_frames >= 1 && num_frames <= kMostTrajectoryFrames, "trajectory: num_frames must be between 1 and ",
           kMostTrajectoryFrames, ", got ", num_frames);
}

}  // namespace

std::vector<Trajectory> parse_trajectories(std::string_view text, const std::string& who) {
  std::vector<Trajectory> out;
  PointReader reader(text, who);
  do {
    SF_CHECK(out.size() < kMostTrajectories, who, ": there can be at most ", kMostTrajectories, " trajectories");
    out.push_back(reader.trajectory());
    SF_CHECK(!out.back().empty(), who, ": trajectory ", out.size(), " has no points; write it as in \"10,54 32,20\"");
  } while (reader.next());
  return out;
}

Trajectory read_trajectory(const std::string& path) {
  const io::OpenFile file(path);
  SF_CHECK(file.size() <= kMostTrajectoryBytes, "'", path, "': a file of points has at most ", kMostTrajectoryBytes,
           " bytes, this one has ", file.size());
  const std::string who = "'" + path + "'";
  SF_CHECK(file.size() > 0, who, ": is empty; a file of points has a line \"x,y\" for each");
  const io::MappedFile bytes(file, 0, file.size());
  std::vector<Trajectory> all =
      parse_trajectories({reinterpret_cast<const char*>(bytes.data()), size_t(bytes.size())}, who);
  SF_CHECK(all.size() == 1, who, ": a file has one trajectory, this one has ", all.size());
  return std::move(all[0]);
}

void check_trajectories(const std::vector<Trajectory>& trajectories, const Canvas& canvas) {
  check_canvas(canvas);
  SF_CHECK(!trajectories.empty(), "trajectory: there is none; give at least one list of points");
  SF_CHECK(trajectories.size() <= kMostTrajectories, "trajectory: there can be at most ", kMostTrajectories, ", got ",
           trajectories.size());
  for (size_t i = 0; i < trajectories.size(); ++i)
    check_points("trajectory " + std::to_string(i + 1), trajectories[i], canvas);
}

Trajectory points_of_frames(const Trajectory& trajectory, int64_t num_frames) {
  check_frames(num_frames);
  const auto frames = size_t(num_frames);
  SF_CHECK(trajectory.size() >= 2, "trajectory: needs at least 2 points, got ", trajectory.size());
  Trajectory out;
  out.reserve(frames);
  if (trajectory.size() >= frames) {
    for (size_t i = 0; out.size() < frames; i += trajectory.size() / frames) out.push_back(trajectory[i]);
    return out;
  }
  const size_t intervals = trajectory.size() - 1, others = frames - trajectory.size();
  for (size_t i = 0; i < intervals; ++i) {
    const auto [x0, y0] = trajectory[i];
    const auto [x1, y1] = trajectory[i + 1];
    const size_t between = others / intervals + (i < others % intervals);
    out.push_back(trajectory[i]);
    for (size_t j = 1; j <= between; ++j) {
      const double part = double(j) / double(between + 1);
      out.push_back({std::trunc(x0 + part * (x1 - x0)), std::trunc(y0 + part * (y1 - y0))});
    }
  }
  out.push_back(trajectory.back());
  return out;
}

std::vector<PixelPoint> pixels_of_frames(const Trajectory& trajectory, int64_t num_frames, int64_t height,
                                         int64_t width, const Canvas& canvas) {
  check_trajectories({trajectory}, canvas);
  SF_CHECK(height >= 1 && width >= 1 && height <= kMostFrameSide && width <= kMostFrameSide,
           "trajectory: frames must be 1 to ", kMostFrameSide, " pixels wide and high, got ", width, "x", height);
  std::vector<PixelPoint> out;
  for (auto [x, y] : points_of_frames(trajectory, num_frames))
    out.push_back({std::min(int64_t(double(width) * x / double(canvas.width)), width - 1),
                   std::min(int64_t(double(height) * y / double(canvas.height)), height - 1)});
  return out;
}

}  // namespace sf::diffusion
