// What the APIs share: how a request becomes a job, and what of jobs each caller may see. Functions that any thread may
// call.
#pragma once
#include "scaffolding/server/http/guard.h"
#include "scaffolding/server/jobs/jobs.h"
#include "scaffolding/server/jobs/upscaling.h"

namespace sf::server {

struct RequestLimits {
  int64_t pixels = 4 << 20;            // of a picture that is made
  int64_t input_pixels = 32 << 20;     // of one that is sent
  int64_t steps = 500, pictures = 64;  // of a job
  int64_t frames = 256;                // of a clip
  double url_seconds = 3600;           // for which a signed address is good
};

struct Context {
  Jobs& jobs;
  Upscaling& upscaling;
  Guard& guard;
  Metrics& metrics;
  Log& log;
  RequestLimits limits;
  std::string secret;                  // for signed addresses
  std::string public_url;              // "https://example.org"; "": by the request's Host
  std::vector<std::string> runs = {};  // folders of training runs, or with some in them
};

// Accepted, or what it was accepted as before. The model's and the sampler's names are settled, limits are looked at,
// and pictures become inputs. ApiError and ValueError saying what is wrong.
struct NewJob {
  JobRequest request;
  std::string image, mask;                  // PNG, JPEG or WebP bytes; "" without
  std::vector<std::string> control_images;  // of each of the request's ControlNets
  Priority priority = Priority::Normal;
  std::string key;
  bool has_seed = true;  // else it is drawn
};
Jobs::Accepted submit(Context& context, const Caller& caller, NewJob job);

// The caller's job of that id, or an admin's view of another's. ApiError 404.
JobView job_of(Context& context, const Caller& caller, const std::string& id);

// The job's ControlNets, of a list with an object for each: model, image, and what else `names` says they are called.
// ApiError and ValueError naming the field.
struct ControlNames {
  std::vector<const char*> image, mode;  // the first that is there counts
  const char* scale;
  const char* start;
  const char* end;
  bool needs_model = false;  // else the model may have them inside
};
void take_controlnets(const json& list, const ControlNames& names, NewJob& job);

// Base64 or a data URL, as bytes. ValueError naming the field.
std::string bytes_of_text(const std::string& field, std::string_view text);
// A random seed, below 2^32 as other programs' are.
int64_t drawn_seed();

json picture_json(const Picture& picture);  // as our own API tells of it
// The file's bytes. ApiError 404 where it is gone.
std::string picture_bytes(Context& context, const Picture& picture);
std::string signed_url(const Context& context, const Request& request, const Picture& picture);
// Whether the query of a picture's address has a signature that is good now. ApiError 410 where it was.
bool is_signed(const Context& context, const std::string& id, const std::map<std::string, std::string>& query);

// Answers once the job is over, by `then`; a client that leaves before cancels it. A job that failed, was cancelled or
// waits because the server stops is answered in this shape.
void answer_when_over(Context& context, const std::string& id, ErrorShape shape, const Answer& answer,
                      std::function<Response(const JobRecord& job)> then);
ApiError error_of(const JobRecord& job);  // of one that is not done

void add_operation_routes(Router& router, Context& context);
void add_job_routes(Router& router, Context& context);
void add_picture_routes(Router& router, Context& context);
void add_session_routes(Router& router, Context& context);
void add_run_routes(Router& router, Context& context);
void add_openai_routes(Router& router, Context& context);
void add_webui_routes(Router& router, Context& context);
void add_webui_list_routes(Router& router, Context& context);
void add_webui_extra_routes(Router& router, Context& context);
void add_comfy_routes(Router& router, Context& context);

}  // namespace sf::server
