// AUTOMATIC1111's API, /sdapi/v1: pictures made larger, one or many.
#include <span>

#include "scaffolding/core/error.h"
#include "scaffolding/io/base64.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/server/apis/context.h"
#include "scaffolding/server/apis/webui.h"

namespace sf::server {

namespace {

Fields extra_fields() {
  using K = FieldKind;
  Fields f{.all = {}, .others = true};
  f.all = {
      field("resize_mode", K::Whole, "0: by upscaling_resize, 1: to upscaling_resize_w and _h")
          .range(0, 1)
          .otherwise(0),
      field("upscaling_resize", K::Number).range(1, 8).otherwise(2.0),
      field("upscaling_resize_w", K::Whole).range(1, 16384).otherwise(512),
      field("upscaling_resize_h", K::Whole).range(1, 16384).otherwise(512),
      field("upscaling_crop", K::Flag, "to that size, in its middle").otherwise(true),
      field("upscaler_1", K::Text, "a name of upscalers").at_most(300).otherwise("None"),
      field("upscaler_2", K::Text, "laid over the first").at_most(300).otherwise("None"),
      field("extras_upscaler_2_visibility", K::Number).range(0, 1).otherwise(0),
      field("gfpgan_visibility", K::Number, "0: there is none here").range(0, 1).otherwise(0),
      field("codeformer_visibility", K::Number, "0: there is none here").range(0, 1).otherwise(0),
  };
  return f;
}

Tensor picture_from(Context& c, const std::string& name, const std::string& text) {
  const std::string bytes = bytes_of_text(name, text);
  io::ImageReadOptions reading;
  reading.max_pixels = c.limits.input_pixels;
  return io::decode_image(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), name, reading);
}

Enlarging enlarging_of(const json& b) {
  for (const char* name : {"gfpgan_visibility", "codeformer_visibility"})
    if (b.value(name, 0.0) != 0)
      throw ApiError(422, std::string(name) + ": there is no restorer of faces here; leave it out", "NotSupported",
                     name);
  Enlarging e;
  e.first = b.value("upscaler_1", "None"), e.second = b.value("upscaler_2", "None");
  e.second_share = b.value("extras_upscaler_2_visibility", 0.0);
  e.scale = b.value("upscaling_resize", 2.0);
  if (b.value("resize_mode", 0) == 1) {
    e.width = b.value("upscaling_resize_w", int64_t(512)), e.height = b.value("upscaling_resize_h", int64_t(512));
    e.crop = b.value("upscaling_crop", true);
  }
  return e;
}

void enlarge(Context& c, Call& call, Enlarging e, const Answer& answer, bool many) {
  c.upscaling.check(e, c.limits.input_pixels);
  c.guard.count_job(call.caller);
  // Noticed between tiles: an answer that nobody waits for is not made.
  answer->on_leave([] {});
  c.upscaling.add(
      std::move(e), [answer] { return !answer->has_left(); },
      [answer, many](std::vector<Tensor> pictures, std::exception_ptr error) {
        try {
          if (error) std::rethrow_exception(error);
          json images = json::array();
          for (auto& p : pictures) images.push_back(io::to_base64(io::encode_image(p, io::ImageFormat::PNG)));
          json body{{"html_info", ""}};
          if (many) body["images"] = images;
          else body["image"] = images[0];
          answer->respond(json_response(body));
        } catch (const std::exception& failure) {
          answer->respond(error_response(ErrorShape::WebUi, failure));
        }
      });
}

}  // namespace

void add_webui_extra_routes(Router& router, Context& c) {
  Fields one = extra_fields(), many = extra_fields();
  one.all.push_back(field("image", FieldKind::Text, "base64").at_most(size_t(-1)).need());
  many.all.push_back(field("imageList", FieldKind::Any, "[{\"data\": base64, \"name\": text}]").need());
  router
      .add("POST", "/sdapi/v1/extra-single-image", "A picture made larger",
           [&c](Call& call, const Answer& a) {
             Enlarging e = enlarging_of(call.body);
             e.pictures.push_back(picture_from(c, "image", call.body["image"].get_ref<const std::string&>()));
             enlarge(c, call, std::move(e), a, false);
           })
      .takes(std::move(one))
      .makes_jobs();
  router
      .add("POST", "/sdapi/v1/extra-batch-images", "Pictures made larger",
           [&c](Call& call, const Answer& a) {
             Enlarging e = enlarging_of(call.body);
             const json& list = call.body["imageList"];
             const auto most = size_t(c.limits.pictures);
             if (!list.is_array() || list.empty() || list.size() > most)
               throw ApiError(422, "imageList: must be a list of 1 to " + std::to_string(most) + " pictures", "",
                              "imageList");
             for (auto& item : list) {
               if (!item.is_object() || !item.contains("data") || !item["data"].is_string())
                 throw ApiError(422, "imageList: each must be an object with data, base64 of a picture", "",
                                "imageList");
               e.pictures.push_back(picture_from(c, "imageList", item["data"].get_ref<const std::string&>()));
             }
             enlarge(c, call, std::move(e), a, true);
           })
      .takes(std::move(many))
      .makes_jobs();
  router.add("GET", "/sdapi/v1/upscalers", "What makes pictures larger", [&c](Call&, const Answer& a) {
    json out = json::array();
    for (auto& name : c.upscaling.names())
      out.push_back(
          {{"name", name}, {"model_name", nullptr}, {"model_path", nullptr}, {"model_url", nullptr}, {"scale", 4}});
    a->respond(json_response(out));
  });
}

}  // namespace sf::server
