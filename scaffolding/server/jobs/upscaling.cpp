#include "scaffolding/server/jobs/upscaling.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/core/release_threads.h"
#include "scaffolding/data/resize.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/models/upscalers/upscale.h"
#include "scaffolding/models/upscalers/upscaler_file.h"
#include "scaffolding/nn/closest.h"
#include "scaffolding/server/http/api_error.h"

namespace sf::server {

namespace {

constexpr size_t kMostTasks = 64;
constexpr int kMostPasses = 3;  // of a network, one after the other, as AUTOMATIC1111 has it

struct NobodyWaits {};

const std::pair<const char*, data::Filter> kFilters[] = {
    {"Nearest", data::Filter::Nearest}, {"Bicubic", data::Filter::Bicubic}, {"Lanczos", data::Filter::Lanczos}};

struct Size {
  int64_t height, width;
};

// How large the enlarged picture is, before it is cut.
Size size_of(const Tensor& picture, const Enlarging& e) {
  const double h = double(picture.size(1)), w = double(picture.size(2));
  double scale = e.scale;
  if (e.width) scale = std::max(double(*e.width) / w, double(*e.height) / h);
  auto sides = [&](double side) { return std::max<int64_t>(1, std::llround(side * scale)); };
  return {sides(h), sides(w)};
}

Tensor laid_over(const Tensor& a, const Tensor& b, double share) {
  const Tensor x = io::planar_image(a), y = io::planar_image(b);
  Tensor out = empty(x.shape(), kUInt8);
  for (int64_t i = 0; i < x.numel(); ++i)
    out.data<uint8_t>()[i] = uint8_t(std::lround((1 - share) * x.data<uint8_t>()[i] + share * y.data<uint8_t>()[i]));
  return out;
}

}  // namespace

Upscaling::Upscaling(const ModelShelf& shelf) : shelf_(shelf), thread_([this] { work(); }) {}
Upscaling::~Upscaling() { stop(); }

std::vector<std::string> Upscaling::names() const {
  std::vector<std::string> out{"None"};
  for (auto& [name, filter] : kFilters) out.emplace_back(name);
  for (auto& name : shelf_.upscaler_names()) out.push_back(name);
  return out;
}

void Upscaling::check(const Enlarging& e, int64_t most_pixels) const {
  const auto known = names();
  for (auto& name : {e.first, e.second.empty() ? std::string("None") : e.second})
    SF_CHECK(std::find(known.begin(), known.end(), name) != known.end(), "upscaler: there is no '", name.substr(0, 100),
             "' here", nn::closest_hint(name, known));
  for (auto& picture : e.pictures) {
    const Size size = size_of(picture, e);
    SF_CHECK(size.width <= most_pixels / size.height, "upscaling_resize: at most ", most_pixels, " pixels, got ",
             size.width, "x", size.height);
  }
}

void Upscaling::add(Enlarging what, std::function<bool()> is_wanted, Then then) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) throw ApiError(503, "the server is stopping", "stopping", "", {{"Retry-After", "10"}});
    if (tasks_.size() >= kMostTasks)
      throw ApiError(429, "the queue is full: " + std::to_string(tasks_.size()) + " pictures wait to be enlarged",
                     "queue_full", "", {{"Retry-After", "30"}});
    tasks_.push_back({std::move(what), std::move(is_wanted), std::move(then)});
  }
  wake_.notify_all();
}

void Upscaling::stop() {
  std::deque<Task> left;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    left.swap(tasks_);
  }
  wake_.notify_all();
  const ApiError stopping(503, "the server is stopping", "stopping", "", {{"Retry-After", "10"}});
  for (auto& task : left) task.then({}, std::make_exception_ptr(stopping));
  if (thread_.joinable()) thread_.join();
}

void Upscaling::work() {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    std::vector<Tensor> pictures;
    std::exception_ptr error;
    try {
      for (auto& picture : task.what.pictures) pictures.push_back(enlarged(picture, task.what, task.is_wanted));
    } catch (const NobodyWaits&) {
      release_threads();
      continue;
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    release_threads();
    task.then(std::move(pictures), error);
  }
}

Tensor Upscaling::by(const std::string& name, Tensor picture, int64_t height, int64_t width,
                     const std::function<bool()>& is_wanted) {
  for (auto& [filter_name, filter] : kFilters)
    if (name == filter_name) return data::resize(picture, height, width, filter);
  if (loaded_name_ != name) {
    loaded_.reset(), loaded_name_.clear();
    models::LoadModelOptions how;
    how.device = shelf_.device();
    loaded_ = models::load_upscaler(shelf_.upscaler_path(name), how);
    loaded_name_ = name;
  }
  models::UpscaleOptions options{.tile = 256};
  options.progress = [&](int64_t, int64_t) {
    std::lock_guard lock(mutex_);
    if (stopping_ || !is_wanted()) throw NobodyWaits();
  };
  for (int pass = 0; pass < kMostPasses && (picture.size(1) < height || picture.size(2) < width); ++pass)
    picture = models::upscale_picture(*loaded_, picture, options);
  return data::resize(picture, height, width, data::Filter::Lanczos);
}

Tensor Upscaling::enlarged(const Tensor& picture, const Enlarging& e, const std::function<bool()>& is_wanted) {
  if (e.first == "None") return picture;
  const Size size = size_of(picture, e);
  Tensor out = by(e.first, picture, size.height, size.width, is_wanted);
  if (!e.second.empty() && e.second != "None" && e.second_share > 0)
    out = laid_over(out, by(e.second, picture, size.height, size.width, is_wanted), e.second_share);
  if (e.width && e.crop) {
    out = out.narrow(1, (size.height - *e.height) / 2, *e.height);
    out = out.narrow(2, (size.width - *e.width) / 2, *e.width);
  }
  return out;
}

}  // namespace sf::server
