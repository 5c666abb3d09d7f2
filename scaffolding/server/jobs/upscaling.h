// Pictures made larger by a filter or a network, beside the jobs: on one thread of its own, in the order in which they
// came. Nothing of it is kept: whoever asked waits for the answer. Any thread may call.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "scaffolding/core/device.h"
#include "scaffolding/core/tensor.h"
#include "scaffolding/server/jobs/model_shelf.h"

namespace sf::server {

struct Enlarging {
  std::vector<Tensor> pictures;          // uint8 [C, H, W]
  std::string first = "None", second;    // of Upscaling::names(); the second's picture is laid over the first's...
  double second_share = 0;               // ...by this share
  double scale = 2;                      // of both sides, or else...
  std::optional<int64_t> width, height;  // ...to cover this size, at whose middle it is cut
  bool crop = true;                      // false: what covers it stays
};

class Upscaling {
 public:
  explicit Upscaling(const ModelShelf& shelf);
  ~Upscaling();
  Upscaling(const Upscaling&) = delete;
  Upscaling& operator=(const Upscaling&) = delete;

  // "None", which leaves pictures as they are, filters, and the shelf's files.
  std::vector<std::string> names() const;
  // ValueError for a name that is not there, and for pictures that would have more than most_pixels.
  void check(const Enlarging& what, int64_t most_pixels) const;

  using Then = std::function<void(std::vector<Tensor> pictures, std::exception_ptr error)>;
  // `then` on the thread, or never where nobody wants it any more. ApiError 429 where too many wait.
  void add(Enlarging what, std::function<bool()> is_wanted, Then then);
  void stop();  // those that wait are answered with ApiError 503

 private:
  struct Task {
    Enlarging what;
    std::function<bool()> is_wanted;
    Then then;
  };
  void work();
  Tensor enlarged(const Tensor& picture, const Enlarging& what, const std::function<bool()>& is_wanted);
  Tensor by(const std::string& name, Tensor picture, int64_t height, int64_t width,
            const std::function<bool()>& is_wanted);

  const ModelShelf& shelf_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  bool stopping_ = false;
  std::string loaded_name_;  // the thread's: the last network stays
  std::unique_ptr<models::Model> loaded_;
  std::thread thread_;
};

}  // namespace sf::server
