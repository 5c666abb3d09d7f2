#include "scaffolding/nn/loss.h"

#include "scaffolding/ops/distance/distance.h"
#include "scaffolding/ops/loss/loss.h"
#include "scaffolding/ops/loss/reduction.h"

namespace sf::nn {

Loss::Loss(const char* name, const std::string& how) : reduction(how) {
  loss::reduce_from(name, how, std::string_view(name) == "KLDivLoss");
}

Tensor MSELoss::forward(const Tensor& x, const Tensor& y) const { return mse_loss(x, y, reduction); }
Tensor L1Loss::forward(const Tensor& x, const Tensor& y) const { return l1_loss(x, y, reduction); }
Tensor SoftMarginLoss::forward(const Tensor& x, const Tensor& y) const { return soft_margin_loss(x, y, reduction); }
SmoothL1Loss::SmoothL1Loss(const std::string& how, double b) : Loss("SmoothL1Loss", how), beta(b) {
  SF_CHECK(b >= 0, "SmoothL1Loss: beta must not be negative, got ", b);
}
Tensor SmoothL1Loss::forward(const Tensor& x, const Tensor& y) const { return smooth_l1_loss(x, y, reduction, beta); }
HuberLoss::HuberLoss(const std::string& how, double d) : Loss("HuberLoss", how), delta(d) {
  SF_CHECK(d > 0, "HuberLoss: delta must be positive, got ", d);
}
Tensor HuberLoss::forward(const Tensor& x, const Tensor& y) const { return huber_loss(x, y, reduction, delta); }
CrossEntropyLoss::CrossEntropyLoss(Tensor w, int64_t ignore, const std::string& how, double smoothing)
    : Loss("CrossEntropyLoss", how), weight(w), ignore_index(ignore), label_smoothing(smoothing) {
  SF_CHECK(smoothing >= 0 && smoothing <= 1, "CrossEntropyLoss: label_smoothing must be between 0.0 and 1.0, got ",
           smoothing);
}
Tensor CrossEntropyLoss::forward(const Tensor& x, const Tensor& y) const {
  return cross_entropy(x, y, weight, ignore_index, reduction, label_smoothing);
}
Tensor NLLLoss::forward(const Tensor& x, const Tensor& y) const {
  return nll_loss(x, y, weight, ignore_index, reduction);
}
Tensor BCELoss::forward(const Tensor& x, const Tensor& y) const {
  return binary_cross_entropy(x, y, weight, reduction);
}
Tensor BCEWithLogitsLoss::forward(const Tensor& x, const Tensor& y) const {
  return binary_cross_entropy_with_logits(x, y, weight, reduction, pos_weight);
}
Tensor KLDivLoss::forward(const Tensor& x, const Tensor& y) const { return kl_div(x, y, reduction, log_target); }
Tensor HingeEmbeddingLoss::forward(const Tensor& x, const Tensor& y) const {
  return hinge_embedding_loss(x, y, margin, reduction);
}
Tensor MarginRankingLoss::forward(const Tensor& a, const Tensor& b, const Tensor& y) const {
  return margin_ranking_loss(a, b, y, margin, reduction);
}
Tensor CosineEmbeddingLoss::forward(const Tensor& a, const Tensor& b, const Tensor& y) const {
  return cosine_embedding_loss(a, b, y, margin, reduction);
}
TripletMarginLoss::TripletMarginLoss(double m, double order, double e, bool s, const std::string& how)
    : Loss("TripletMarginLoss", how), margin(m), p(order), eps(e), swap(s) {
  SF_CHECK(m > 0, "TripletMarginLoss: expected margin to be greater than 0, got ", m, " instead");
}
Tensor TripletMarginLoss::forward(const Tensor& a, const Tensor& b, const Tensor& c) const {
  return triplet_margin_loss(a, b, c, margin, p, eps, swap, reduction);
}
PoissonNLLLoss::PoissonNLLLoss(bool log, bool f, double e, const std::string& how)
    : Loss("PoissonNLLLoss", how), log_input(log), full(f), eps(e) {}
Tensor PoissonNLLLoss::forward(const Tensor& x, const Tensor& y) const {
  return poisson_nll_loss(x, y, log_input, full, eps, reduction);
}
GaussianNLLLoss::GaussianNLLLoss(bool f, double e, const std::string& how)
    : Loss("GaussianNLLLoss", how), full(f), eps(e) {
  SF_CHECK(e > 0, "GaussianNLLLoss: eps must be positive, got ", e);
}
Tensor MultiLabelSoftMarginLoss::forward(const Tensor& x, const Tensor& y) const {
  return multilabel_soft_margin_loss(x, y, weight, reduction);
}
Tensor GaussianNLLLoss::forward(const Tensor& x, const Tensor& y, const Tensor& var) const {
  return gaussian_nll_loss(x, y, var, full, eps, reduction);
}
Tensor CosineSimilarity::forward(const Tensor& a, const Tensor& b) const { return cosine_similarity(a, b, dim, eps); }
Tensor PairwiseDistance::forward(const Tensor& a, const Tensor& b) const {
  return pairwise_distance(a, b, norm, eps, keepdim);
}

// ---- registration. size_average and reduce are torch's old words for reduction.

using OptionalBool = std::optional<bool>;
std::string reduction_of(OptionalBool size_average, OptionalBool reduce, const std::string& reduction) {
  if (!size_average && !reduce) return reduction;
  return !reduce.value_or(true) ? "none" : size_average.value_or(true) ? "mean" : "sum";
}
template <class T>
static std::unique_ptr<T> make_loss(OptionalBool size_average, OptionalBool reduce, std::string reduction) {
  return std::make_unique<T>(reduction_of(size_average, reduce, reduction));
}
template <class T>
static std::unique_ptr<T> make_margin(double margin, OptionalBool size_average, OptionalBool reduce,
                                      std::string reduction) {
  return std::make_unique<T>(margin, reduction_of(size_average, reduce, reduction));
}
template <class T> static LayerEntry& loss_fields(LayerEntry& e) {
  return e.forward<&T::forward>("input, target").template field<&Loss::reduction>("reduction");
}
template <class T> static LayerEntry& pair_fields(LayerEntry& e) {
  return e.forward<&T::forward>("input1, input2, target")
      .template field<&Loss::reduction>("reduction")
      .template field<&T::margin>("margin");
}

static constexpr const char* kLoss = "size_average=None, reduce=None, reduction='mean'";
SF_LAYER(MSELoss, kLoss, &make_loss<MSELoss>).doc("(input - target)^2.").with(loss_fields<MSELoss>);
SF_LAYER(L1Loss, kLoss, &make_loss<L1Loss>).doc("|input - target|.").with(loss_fields<L1Loss>);
SF_LAYER(SoftMarginLoss, kLoss, &make_loss<SoftMarginLoss>)
    .doc("log(1 + exp(-target * input)), target -1 or 1.")
    .with(loss_fields<SoftMarginLoss>);
SF_LAYER(SmoothL1Loss, "size_average=None, reduce=None, reduction='mean', beta=1.0",
         [](OptionalBool size_average, OptionalBool reduce, std::string reduction, double beta) {
           return std::make_unique<SmoothL1Loss>(reduction_of(size_average, reduce, reduction), beta);
         })
    .doc("Quadratic below beta, linear above.")
    .with(loss_fields<SmoothL1Loss>)
    .field<&SmoothL1Loss::beta>("beta");
SF_LAYER(HuberLoss, "reduction='mean', delta=1.0",
         [](std::string reduction, double delta) { return std::make_unique<HuberLoss>(reduction, delta); })
    .doc("Quadratic below delta, linear above.")
    .with(loss_fields<HuberLoss>)
    .field<&HuberLoss::delta>("delta");
SF_LAYER(CrossEntropyLoss,
         "weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean', label_smoothing=0.0",
         [](Tensor weight, OptionalBool size_average, int64_t ignore_index, OptionalBool reduce, std::string reduction,
            double label_smoothing) {
           return std::make_unique<CrossEntropyLoss>(weight, ignore_index,
                                                     reduction_of(size_average, reduce, reduction), label_smoothing);
         })
    .doc("Cross entropy of logits [N, C, ...] with class numbers [N, ...] or probabilities [N, C, ...].")
    .with(loss_fields<CrossEntropyLoss>)
    .field<&CrossEntropyLoss::ignore_index>("ignore_index")
    .field<&CrossEntropyLoss::label_smoothing>("label_smoothing");
SF_LAYER(NLLLoss, "weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean'",
         [](Tensor weight, OptionalBool size_average, int64_t ignore_index, OptionalBool reduce,
            std::string reduction) {
           return std::make_unique<NLLLoss>(weight, ignore_index, reduction_of(size_average, reduce, reduction));
         })
    .doc("Negative log likelihood of log-probabilities [N, C, ...] at class numbers [N, ...].")
    .with(loss_fields<NLLLoss>)
    .field<&NLLLoss::ignore_index>("ignore_index");
SF_LAYER(BCELoss, "weight=None, size_average=None, reduce=None, reduction='mean'",
         [](Tensor weight, OptionalBool size_average, OptionalBool reduce, std::string reduction) {
           return std::make_unique<BCELoss>(weight, reduction_of(size_average, reduce, reduction));
         })
    .doc("Binary cross entropy of probabilities.")
    .with(loss_fields<BCELoss>);
SF_LAYER(BCEWithLogitsLoss, "weight=None, size_average=None, reduce=None, reduction='mean', pos_weight=None",
         [](Tensor weight, OptionalBool size_average, OptionalBool reduce, std::string reduction, Tensor pos_weight) {
           return std::make_unique<BCEWithLogitsLoss>(weight, reduction_of(size_average, reduce, reduction),
                                                      pos_weight);
         })
    .doc("Binary cross entropy of logits.")
    .with(loss_fields<BCEWithLogitsLoss>);
SF_LAYER(KLDivLoss, "size_average=None, reduce=None, reduction='mean', log_target=False",
         [](OptionalBool size_average, OptionalBool reduce, std::string reduction, bool log_target) {
           return std::make_unique<KLDivLoss>(reduction_of(size_average, reduce, reduction), log_target);
         })
    .doc("target * (log target - input), input being log-probabilities.")
    .with(loss_fields<KLDivLoss>)
    .field<&KLDivLoss::log_target>("log_target");
SF_LAYER(HingeEmbeddingLoss, "margin=1.0, size_average=None, reduce=None, reduction='mean'",
         &make_margin<HingeEmbeddingLoss>)
    .doc("input where target is 1, max(0, margin - input) where it is -1.")
    .with(loss_fields<HingeEmbeddingLoss>)
    .field<&HingeEmbeddingLoss::margin>("margin");
SF_LAYER(MarginRankingLoss, "margin=0.0, size_average=None, reduce=None, reduction='mean'",
         &make_margin<MarginRankingLoss>)
    .doc("max(0, -target * (input1 - input2) + margin).")
    .with(pair_fields<MarginRankingLoss>);
SF_LAYER(CosineEmbeddingLoss, "margin=0.0, size_average=None, reduce=None, reduction='mean'",
         &make_margin<CosineEmbeddingLoss>)
    .doc("1 - cos where target is 1, max(0, cos - margin) where it is -1.")
    .with(pair_fields<CosineEmbeddingLoss>);
SF_LAYER(TripletMarginLoss, "margin=1.0, p=2.0, eps=1e-6, swap=False, size_average=None, reduce=None, reduction='mean'",
         [](double margin, double p, double eps, bool swap, OptionalBool size_average, OptionalBool reduce,
            std::string reduction) {
           return std::make_unique<TripletMarginLoss>(margin, p, eps, swap,
                                                      reduction_of(size_average, reduce, reduction));
         })
    .doc("max(0, distance(anchor, positive) - distance(anchor, negative) + margin).")
    .forward<&TripletMarginLoss::forward>("anchor, positive, negative")
    .field<&Loss::reduction>("reduction")
    .field<&TripletMarginLoss::margin>("margin")
    .field<&TripletMarginLoss::p>("p")
    .field<&TripletMarginLoss::eps>("eps")
    .field<&TripletMarginLoss::swap>("swap");
SF_LAYER(PoissonNLLLoss, "log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction='mean'",
         [](bool log_input, bool full, OptionalBool size_average, double eps, OptionalBool reduce,
            std::string reduction) {
           return std::make_unique<PoissonNLLLoss>(log_input, full, eps, reduction_of(size_average, reduce, reduction));
         })
    .doc("Negative log likelihood of counts under a Poisson distribution of rate input, or exp(input) where log_input.")
    .forward<&PoissonNLLLoss::forward>("log_input, target")
    .field<&Loss::reduction>("reduction")
    .field<&PoissonNLLLoss::log_input>("log_input")
    .field<&PoissonNLLLoss::full>("full")
    .field<&PoissonNLLLoss::eps>("eps");
SF_LAYER(MultiLabelSoftMarginLoss, "weight=None, size_average=None, reduce=None, reduction='mean'",
         [](Tensor weight, OptionalBool size_average, OptionalBool reduce, std::string reduction) {
           return std::make_unique<MultiLabelSoftMarginLoss>(weight, reduction_of(size_average, reduce, reduction));
         })
    .doc("Binary cross entropy of logits [N, C] with targets of 0 and 1, the mean over C.")
    .with(loss_fields<MultiLabelSoftMarginLoss>);
SF_LAYER(GaussianNLLLoss, "full=False, eps=1e-6, reduction='mean'",
         [](bool full, double eps, std::string reduction) {
           return std::make_unique<GaussianNLLLoss>(full, eps, reduction);
         })
    .doc("Negative log likelihood of target under a normal distribution of mean input and variance var.")
    .forward<&GaussianNLLLoss::forward>("input, target, var")
    .field<&Loss::reduction>("reduction")
    .field<&GaussianNLLLoss::full>("full")
    .field<&GaussianNLLLoss::eps>("eps");
SF_LAYER(CosineSimilarity, "dim=1, eps=1e-8",
         [](int64_t dim, double eps) { return std::make_unique<CosineSimilarity>(dim, eps); })
    .doc("The cosine of the angle between x1 and x2 along dim.")
    .forward<&CosineSimilarity::forward>("x1, x2")
    .field<&CosineSimilarity::dim>("dim")
    .field<&CosineSimilarity::eps>("eps");
SF_LAYER(PairwiseDistance, "p=2.0, eps=1e-6, keepdim=False",
         [](double p, double eps, bool keepdim) { return std::make_unique<PairwiseDistance>(p, eps, keepdim); })
    .doc("The p-norm of x1 - x2 along the last dimension.")
    .forward<&PairwiseDistance::forward>("x1, x2")
    .field<&PairwiseDistance::norm>("norm")
    .field<&PairwiseDistance::eps>("eps")
    .field<&PairwiseDistance::keepdim>("keepdim");

}  // namespace sf::nn
