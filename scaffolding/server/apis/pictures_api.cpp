// Our own API, /api/v1: the pictures that were made, as a gallery shows them and one by one.
#include <algorithm>
#include <span>

#include "scaffolding/data/resize.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/io/video/video_reader.h"
#include "scaffolding/server/apis/context.h"
#include "scaffolding/server/jobs/clip_files.h"

namespace sf::server {

json picture_json(const Picture& p) {
  return {{"id", p.id},
          {"url", "/api/v1/pictures/" + p.id},
          {"seed", p.seed},
          {"width", p.width},
          {"height", p.height},
          {"bytes", p.bytes},
          {"frames", p.frames},
          {"type", media_type(p.file)},
          {"favourite", p.favourite}};
}

namespace {

History::Found picture_for(Context& c, const Caller& caller, const std::string& id) {
  auto found = c.jobs.history().find_picture(id);
  if (!found || (found->client != caller.name && !caller.admin))
    throw ApiError(404, "there is no picture '" + id.substr(0, 60) + "'", "not_found", "id");
  return *found;
}

Response picture_response(Context& c, const Picture& picture) {
  return {.body = picture_bytes(c, picture),
          .type = media_type(picture.file),
          .headers = {{"Cache-Control", "private, max-age=31536000, immutable"}}};
}

constexpr int64_t kThumbnail = 256;  // pixels of the longer side

// A zip of frames has none: 404.
Response thumbnail_response(Context& c, const Picture& p) {
  const std::string type = media_type(p.file);
  if (type == "application/zip") throw ApiError(404, "a zip of frames has no thumbnail", "not_found");
  std::string bytes = picture_bytes(c, p);
  const int64_t longer = std::max(p.width, p.height);
  const Headers headers{{"Cache-Control", "private, max-age=31536000, immutable"}};
  if (p.frames == 1 && longer <= kThumbnail) return {.body = std::move(bytes), .type = type, .headers = headers};
  const io::Bytes file = io::Bytes::take(std::move(bytes), p.file);
  const Tensor image = p.frames > 1
                           ? io::VideoReader(file).frame(0).permute({2, 0, 1})
                           : io::decode_image(std::span(reinterpret_cast<const uint8_t*>(file.data), file.size), p.file,
                                              {.mode = io::ImageMode::RGB});
  auto side = [&](int64_t n) { return std::max<int64_t>(1, n * std::min(longer, kThumbnail) / longer); };
  const Tensor small = data::resize(image, side(p.height), side(p.width));
  return {.body = io::encode_image(small, io::ImageFormat::WebP), .type = "image/webp", .headers = headers};
}

}  // namespace

void add_picture_routes(Router& router, Context& c) {
  using K = FieldKind;
  router
      .add("GET", "/api/v1/pictures", "The caller's pictures, the newest first",
           [&c](Call& call, const Answer& a) {
             PictureFilter filter{.client = call.caller.name, .words = call.query.value("words", "")};
             filter.favourites = call.query.value("favourites", false);
             filter.offset = call.query.value("offset", int64_t(0));
             filter.limit = call.query.value("limit", int64_t(100));
             const auto page = c.jobs.history().pictures(filter);
             json pictures = json::array();
             for (auto& p : page.pictures) {
               json one = picture_json(p.picture);
               one["job"] = p.job, one["prompt"] = p.prompt, one["created"] = p.created;
               pictures.push_back(std::move(one));
             }
             a->respond(json_response({{"total", page.total}, {"pictures", pictures}}));
           })
      .asks({field("words", K::Text, "in prompts; the last one may be a beginning").at_most(1000),
             field("favourites", K::Flag, "these alone"), field("offset", K::Whole).range(0, 1e12),
             field("limit", K::Whole).range(1, 500)});
  router.add("GET", "/api/v1/pictures/{id}/thumbnail",
             "At most 256 pixels a side; of clips in files of frames their first one, else the picture itself",
             [&c](Call& call, const Answer& a) {
               a->respond(thumbnail_response(c, picture_for(c, call.caller, call.path.at("id")).picture));
             });
  router.add("GET", "/api/v1/pictures/{id}",
             "A picture, a PNG that says how it was made, or a clip in the format that was asked for",
             [&c](Call& call, const Answer& a) {
               a->respond(picture_response(c, picture_for(c, call.caller, call.path.at("id")).picture));
             });
  router
      .add("PATCH", "/api/v1/pictures/{id}", "Favourites are kept whatever their age",
           [&c](Call& call, const Answer& a) {
             auto found = picture_for(c, call.caller, call.path.at("id"));
             found.picture.favourite = call.body["favourite"].get<bool>();
             c.jobs.history().set_favourite(found.picture.id, found.picture.favourite);
             a->respond(json_response(picture_json(found.picture)));
           })
      .takes({.all = {field("favourite", K::Flag).need()}});
  router.add("DELETE", "/api/v1/pictures/{id}", "Removes a picture for good", [&c](Call& call, const Answer& a) {
    c.jobs.history().remove_picture(picture_for(c, call.caller, call.path.at("id")).picture.id);
    a->respond({.status = 204, .type = ""});
  });
  router
      .add("GET", "/pictures/{file}", "A picture by a signed address, as OpenAI's API gives them",
           [&c](Call& call, const Answer& a) {
             std::string id = call.path.at("file");
             if (const size_t dot = id.rfind('.'); dot != id.npos) id.resize(dot);
             if (!is_signed(c, id, call.request.query))
               throw ApiError(403, "the address has no signature of this server", "signature");
             const auto found = c.jobs.history().find_picture(id);
             if (!found) throw ApiError(404, "the picture is not there any more", "not_found");
             a->respond(picture_response(c, found->picture));
           })
      .open();
}

}  // namespace sf::server
