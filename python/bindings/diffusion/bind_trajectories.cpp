// What scaffolding/diffusion/pipelines/tora.py calls. Points are pairs of numbers.
#include "python/bindings/diffusion/bind_trajectories.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "scaffolding/diffusion/pipelines/tora/trajectory_flow.h"

namespace sf::py {

using namespace diffusion;

namespace {

using Points = std::vector<std::pair<double, double>>;

Points points_of(const Trajectory& t) {
  Points out;
  for (auto [x, y] : t) out.emplace_back(x, y);
  return out;
}
std::vector<Trajectory> trajectories_of(const std::vector<Points>& lists) {
  std::vector<Trajectory> out;
  for (auto& points : lists)
    for (out.emplace_back(); auto [x, y] : points) out.back().push_back({x, y});
  return out;
}
TrajectoryFlowOptions options_of(std::pair<int64_t, int64_t> canvas, int64_t kernel_size, double sigma) {
  return {.canvas = {canvas.first, canvas.second}, .kernel_size = kernel_size, .sigma = sigma};
}

}  // namespace

void bind_trajectories(nb::module_& core) {
  nb::module_ m = nb::borrow<nb::module_>(core.attr("_diffusion"));
  m.def("parse_trajectories", [](const std::string& text) {
    std::vector<Points> out;
    for (auto& t : parse_trajectories(text)) out.push_back(points_of(t));
    return out;
  });
  m.def("read_trajectory", [](const std::string& path) { return points_of(read_trajectory(path)); });
  m.def("pixels_of_frames", [](const std::vector<Points>& lists, int64_t num_frames, int64_t height, int64_t width,
                               std::pair<int64_t, int64_t> canvas) {
    const std::vector<Trajectory> all = trajectories_of(lists);
    const Canvas measured{canvas.first, canvas.second};
    check_trajectories(all, measured);
    std::vector<std::vector<std::pair<int64_t, int64_t>>> out;
    for (auto& t : all)
      for (out.emplace_back(); auto [x, y] : pixels_of_frames(t, num_frames, height, width, measured))
        out.back().emplace_back(x, y);
    return out;
  });
  m.def("trajectory_flow", [](const std::vector<Points>& lists, int64_t num_frames, int64_t height, int64_t width,
                              std::pair<int64_t, int64_t> canvas, int64_t kernel_size, double sigma) {
    nb::gil_scoped_release released;
    return trajectory_flow(trajectories_of(lists), num_frames, height, width, options_of(canvas, kernel_size, sigma));
  });
  m.def("flow_to_image", [](const Tensor& flow) {
    nb::gil_scoped_release released;
    return flow_to_image(flow);
  });
  m.def("video_of_flow", [](const Tensor& flow) {
    nb::gil_scoped_release released;
    return video_of_flow(flow);
  });
}

}  // namespace sf::py
