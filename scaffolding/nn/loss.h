// Losses as layers: forward(input, target). `reduction` is "mean", "sum" or "none".
#pragma once
#include "scaffolding/nn/layer.h"

namespace sf::nn {

struct Loss : Module {
  std::string reduction;
  explicit Loss(const char* name, const std::string& reduction);
};

// torch's old words for reduction: "none" without reduce, "sum" without size_average; else reduction.
std::string reduction_of(std::optional<bool> size_average, std::optional<bool> reduce, const std::string& reduction);

#define SF_LOSS(Type)                                                    \
  struct Type : Loss {                                                   \
    SF_MODULE(Type)                                                      \
    explicit Type(const std::string& how = "mean") : Loss(#Type, how) {} \
    Tensor forward(const Tensor& input, const Tensor& target) const;     \
  };
SF_LOSS(MSELoss)
SF_LOSS(L1Loss)
SF_LOSS(SoftMarginLoss)
#undef SF_LOSS

struct SmoothL1Loss : Loss {
  double beta;
  SF_MODULE(SmoothL1Loss)
  explicit SmoothL1Loss(const std::string& how = "mean", double beta = 1);
  Tensor forward(const Tensor& input, const Tensor& target) const;
};
struct HuberLoss : Loss {
  double delta;
  SF_MODULE(HuberLoss)
  explicit HuberLoss(const std::string& how = "mean", double delta = 1);
  Tensor forward(const Tensor& input, const Tensor& target) const;
};
struct CrossEntropyLoss : Loss {
  Buffer weight;  // [C], or absent
  int64_t ignore_index;
  double label_smoothing;
  SF_MODULE(CrossEntropyLoss, weight)
  explicit CrossEntropyLoss(Tensor weight = {}, int64_t ignore_index = -100, const std::string& how = "mean",
                            double label_smoothing = 0);
  Tensor forward(const Tensor& input, const Tensor& target) const;
};
struct NLLLoss : Loss {
  Buffer weight;  // [C], or absent
  int64_t ignore_index;
  SF_MODULE(NLLLoss, weight)
  explicit NLLLoss(Tensor w = {}, int64_t ignore = -100, const std::string& how = "mean")
      : Loss("NLLLoss", how), weight(w), ignore_index(ignore) {}
  Tensor forward(const Tensor& input, const Tensor& target) const;
};
struct BCELoss : Loss {
  Buffer weight;
  SF_MODULE(BCELoss, weight)
  explicit BCELoss(Tensor w = {}, const std::string& how = "mean") : Loss("BCELoss", how), weight(w) {}
  Tensor forward(const Tensor& input, const Tensor& target) const;
};
struct BCEWithLogitsLoss : Loss {
  Buffer weight, pos_weight;
  SF_MODULE(BCEWithLogitsLoss, weight, pos_weight)
  explicit BCEWithLogitsLoss(Tensor w = {}, const std::string& how = "mean", Tensor pos = {})
      : Loss("BCEWithLogitsLoss", how), weight(w), pos_weight(pos) {}
  Tensor forward(const Tensor& input, const Tensor& target) const;
};
struct KLDivLoss : Loss {
  bool log_target;
  SF_MODULE(KLDivLoss)
  explicit KLDivLoss(const std::string& how = "mean", bool log = false) : Loss("KLDivLoss", how), log_target(log) {}
  Tensor forward(const Tensor& input, const Tensor& target) const;
};
struct HingeEmbeddingLoss : Loss {
  double margin;
  SF_MODULE(HingeEmbeddingLoss)
  explicit HingeEmbeddingLoss(double m = 1, const std::string& how = "mean")
      : Loss("HingeEmbeddingLoss", how), margin(m) {}
  Tensor forward(const Tensor& input, const Tensor& target) const;
};
struct MarginRankingLoss : Loss {
  double margin;
  SF_MODULE(MarginRankingLoss)
  explicit MarginRankingLoss(double m = 0, const std::string& how = "mean")
      : Loss("MarginRankingLoss", how), margin(m) {}
  Tensor forward(const Tensor& input1, const Tensor& input2, const Tensor& target) const;
};
struct CosineEmbeddingLoss : Loss {
  double margin;
  SF_MODULE(CosineEmbeddingLoss)
  explicit CosineEmbeddingLoss(double m = 0, const std::string& how = "mean")
      : Loss("CosineEmbeddingLoss", how), margin(m) {}
  Tensor forward(const Tensor& input1, const Tensor& input2, const Tensor& target) const;
};
struct TripletMarginLoss : Loss {
  double margin, p, eps;
  bool swap;
  SF_MODULE(TripletMarginLoss)
  explicit TripletMarginLoss(double margin = 1, double p = 2, double eps = 1e-6, bool swap = false,
                             const std::string& how = "mean");
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const;
};
struct PoissonNLLLoss : Loss {
  bool log_input, full;
  double eps;
  SF_MODULE(PoissonNLLLoss)
  explicit PoissonNLLLoss(bool log = true, bool full = false, double eps = 1e-8, const std::string& how = "mean");
  Tensor forward(const Tensor& log_input, const Tensor& target) const;
};
struct MultiLabelSoftMarginLoss : Loss {
  Buffer weight;  // [C], or absent
  SF_MODULE(MultiLabelSoftMarginLoss, weight)
  explicit MultiLabelSoftMarginLoss(Tensor w = {}, const std::string& how = "mean")
      : Loss("MultiLabelSoftMarginLoss", how), weight(w) {}
  Tensor forward(const Tensor& input, const Tensor& target) const;
};
struct GaussianNLLLoss : Loss {
  bool full;
  double eps;
  SF_MODULE(GaussianNLLLoss)
  explicit GaussianNLLLoss(bool full = false, double eps = 1e-6, const std::string& how = "mean");
  Tensor forward(const Tensor& input, const Tensor& target, const Tensor& var) const;
};

struct CosineSimilarity : Module {
  int64_t dim;
  double eps;
  SF_MODULE(CosineSimilarity)
  explicit CosineSimilarity(int64_t d = 1, double e = 1e-8) : dim(d), eps(e) {}
  Tensor forward(const Tensor& x1, const Tensor& x2) const;
};
struct PairwiseDistance : Module {
  double norm, eps;
  bool keepdim;
  SF_MODULE(PairwiseDistance)
  explicit PairwiseDistance(double p = 2, double e = 1e-6, bool keep = false) : norm(p), eps(e), keepdim(keep) {}
  Tensor forward(const Tensor& x1, const Tensor& x2) const;
};

}  // namespace sf::nn
