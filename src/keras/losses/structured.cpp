// Losses of whole batches, of pairs and of sequences.

#include <limits>

#include "keras/losses/families.h"

namespace tutti::keras::losses {
namespace {

using Axes = std::optional<std::vector<int64_t>>;

Tensor sum_over(const char* name, const Tensor& values, const Axes& axes) {
  if (!axes) return values.sum();
  for (const int64_t axis : *axes) checked_axis(name, axis, values);
  return axes->empty() ? values : values.sum(*axes);
}

Axes axes_from(const Json& json) {
  const auto found = json.find("axis");
  if (found == json.end() || found->is_null()) return std::nullopt;
  if (found->is_number_integer()) return std::vector<int64_t>{found->get<int64_t>()};
  return member<std::vector<int64_t>>(json, "axis", {});
}

Json to_json(const Axes& axes) { return axes ? Json(*axes) : Json(); }

Tensor column_of_labels(const char* name, const Tensor& labels, const Tensor& embeddings) {
  if (embeddings.dim() == 2 && labels.numel() == embeddings.size(0) &&
      (labels.dim() == 1 || (labels.dim() == 2 && labels.size(1) == 1))) {
    return labels.to(at::kLong).reshape({-1, 1});
  }
  wrong_shapes(name, labels, embeddings, "labels (batch,) for embeddings (batch, dim)");
}

/// The rows of `own` against those of `other`: which pairs are of one class, which are not.
struct Pairs {
  Tensor positive;
  Tensor negative;
};
Pairs pairs_of(const Tensor& own, const Tensor& other, bool remove_diagonal) {
  const Tensor same = own.eq(other.transpose(0, 1));
  if (!remove_diagonal) return {same, same.logical_not()};
  return {same.logical_and(at::eye(own.size(0), other.size(0), same.options()).logical_not()),
          same.logical_not()};
}

struct CircleImpl : FunctionImpl {
  explicit CircleImpl(const CircleOptions& options)
      : FunctionImpl(
            "Circle", options.name, options.reduction,
            [options](const Tensor& y_true, const Tensor& y_pred) {
              return circle(y_true, y_pred, options);
            },
            Json{{"gamma", options.gamma},
                 {"margin", options.margin},
                 {"remove_diagonal", options.remove_diagonal}}),
        remove_diagonal(options.remove_diagonal) {}
  Tensor valid(const Tensor& y_true, const Tensor& y_pred) const override {
    const Tensor labels = column_of_labels("circle", y_true, y_pred);
    const Pairs pairs = pairs_of(labels, labels, remove_diagonal);
    return pairs.positive.any(1).logical_and(pairs.negative.any(1));
  }
  bool remove_diagonal;
};

void check_ctc_labels(const Tensor& labels, int64_t classes) {
  if (labels.numel() == 0) return;
  const auto [least, most] = at::aminmax(labels);
  if (least.item<int64_t>() >= 0 && most.item<int64_t>() < classes) return;
  throw InvalidArgument(cat("loss [ctc]: labels from ", least.item<int64_t>(), " to ",
                            most.item<int64_t>(), " for ", classes,
                            " classes, expected from 0 (the blank) to ", classes - 1));
}

}  // namespace

Tensor dice(const Tensor& y_true, const Tensor& y_pred, const Axes& axis) {
  const auto [labels, predictions] = matched("dice", y_true, y_pred);
  const Tensor both = sum_over("dice", labels * predictions, axis);
  return 1 - 2 * both /
                 (sum_over("dice", labels, axis) + sum_over("dice", predictions, axis) + kEpsilon);
}

Tensor tversky(const Tensor& y_true, const Tensor& y_pred, const TverskyOptions& options) {
  const auto [labels, predictions] = matched("tversky", y_true, y_pred);
  const Tensor both = sum_over("tversky", labels * predictions, options.axis);
  const Tensor missed = sum_over("tversky", (1 - predictions) * labels, options.axis);
  const Tensor added = sum_over("tversky", predictions * (1 - labels), options.axis);
  return 1 - both / (both + missed * options.alpha + added * options.beta + kEpsilon);
}

Tensor circle(const Tensor& y_true, const Tensor& y_pred, const CircleOptions& options,
              const Tensor& ref_labels, const Tensor& ref_embeddings) {
  const Tensor own = computable(y_pred);
  const Tensor other = ref_embeddings.defined() ? ref_embeddings.to(own.scalar_type()) : own;
  const Tensor labels = column_of_labels("circle", y_true, own);
  const Pairs pairs = pairs_of(
      labels, ref_labels.defined() ? column_of_labels("circle", ref_labels, other) : labels,
      options.remove_diagonal);
  const double margin = options.margin;
  const Tensor distance = (1 - at::matmul(own, other.transpose(0, 1))).clamp_min(0);
  const Tensor near =
      -options.gamma * (margin + distance).clamp_min(0) * (margin - distance) * pairs.positive;
  const Tensor far = options.gamma * (1 + margin - distance).clamp_min(0) *
                     (1 - margin - distance) * pairs.negative;
  // A row without pairs of one kind would have the gradient of log(0), NaN: it gets other numbers,
  // which are then left out.
  const Tensor counts = pairs.positive.any(1).logical_and(pairs.negative.any(1));
  const auto log_sum = [&](const Tensor& terms, const Tensor& mask) {
    const Tensor out = mask.logical_not().logical_and(counts.unsqueeze(1));
    return terms.masked_fill(out, -std::numeric_limits<double>::infinity()).logsumexp(1);
  };
  const Tensor loss = at::softplus(log_sum(near, pairs.positive) + log_sum(far, pairs.negative));
  return at::where(counts, loss, at::zeros({}, loss.options()));
}

Tensor ctc(const Tensor& y_true, const Tensor& y_pred) {
  if (y_true.dim() != 2 || y_pred.dim() != 3 || y_true.size(0) != y_pred.size(0)) {
    wrong_shapes("ctc", y_true, y_pred,
                 "labels (batch, length) for logits (batch, steps, classes)");
  }
  const Tensor logits = computable(y_pred);
  const int64_t rows = logits.size(0);
  if (rows == 0) return logits.sum({1, 2});
  const Tensor labels = y_true.to(at::kLong);
  check_ctc_labels(labels, logits.size(2));
  const Tensor label_lengths = labels.ne(0).sum(-1);
  const Tensor steps = at::full({rows}, logits.size(1), label_lengths.options());
  return at::ctc_loss(logits.transpose(0, 1).log_softmax(-1), labels, steps, label_lengths,
                      /*blank=*/0, at::Reduction::None);
}

Dice::Dice(const DiceOptions& options)
    : Loss([&] {
        const DiceOptions own = named(options, "dice");
        return std::make_shared<FunctionImpl>(
            "Dice", own.name, own.reduction,
            [axis = own.axis](const Tensor& y_true, const Tensor& y_pred) {
              return dice(y_true, y_pred, axis);
            },
            Json{{"axis", to_json(own.axis)}});
      }()) {}
Tversky::Tversky(const TverskyOptions& options)
    : Loss([&] {
        const TverskyOptions own = named(options, "tversky");
        return std::make_shared<FunctionImpl>(
            "Tversky", own.name, own.reduction,
            [own](const Tensor& y_true, const Tensor& y_pred) {
              return tversky(y_true, y_pred, own);
            },
            Json{{"alpha", own.alpha}, {"beta", own.beta}, {"axis", to_json(own.axis)}});
      }()) {}
Circle::Circle(const CircleOptions& options)
    : Loss(std::make_shared<CircleImpl>(named(options, "circle"))) {}
CTC::CTC(const LossOptions& options)
    : Loss([&] {
        const LossOptions own = named(options, "ctc");
        return std::make_shared<FunctionImpl>("CTC", own.name, own.reduction, ctc);
      }()) {}

LossFamily structured_losses() {
  static const std::vector<LossEntry> kEntries = {
      {"Dice",
       "dice",
       {},
       [](const Json& json, const LossBase& base) -> Loss {
         return Dice({base.reduction, base.name, axes_from(json)});
       }},
      {"Tversky",
       "tversky",
       {},
       [](const Json& json, const LossBase& base) -> Loss {
         return Tversky({member<double>(json, "alpha", 0.5), member<double>(json, "beta", 0.5),
                         base.reduction, base.name, axes_from(json)});
       }},
      {"Circle",
       "circle",
       {},
       [](const Json& json, const LossBase& base) -> Loss {
         return Circle({member<double>(json, "gamma", 80), member<double>(json, "margin", 0.4),
                        member<bool>(json, "remove_diagonal", true), base.reduction, base.name});
       }},
      {"CTC", "ctc", {}, [](const Json&, const LossBase& base) -> Loss {
         return CTC({base.reduction, base.name});
       }}};
  return kEntries;
}

}  // namespace tutti::keras::losses
