// Intersections over unions.

#include <atomic>

#include "keras/metrics/families.h"
#include "tutti/base/log.h"

namespace tutti::keras::metrics {
namespace {

/// What the classes of this family differ in.
struct Union {
  const char* class_name;
  IoUOptions options;
  std::optional<double> threshold = std::nullopt;
  Json arguments = Json::object();
};

class IoUImpl : public ArgumentsImpl {
 public:
  explicit IoUImpl(Union kind)
      : ArgumentsImpl(kind.class_name, kind.options.name, Direction::kUp,
                      std::move(kind.arguments)),
        options_(kind.options),
        threshold_(kind.threshold) {
    if (options_.num_classes < 1) {
      throw InvalidArgument(cat("metric [", name(), "]: num_classes ", options_.num_classes,
                                ", expected at least 1"));
    }
    if (options_.dtype != at::kLong && options_.dtype != at::kInt && options_.dtype != at::kFloat)
      throw InvalidArgument(cat("metric [", name(), "]: dtype ", c10::toString(options_.dtype),
                                ", expected int64, int32 or float32"));
    for (const int64_t id : options_.target_class_ids) {
      if (id >= 0 && id < options_.num_classes) continue;
      throw InvalidArgument(cat("metric [", name(), "]: target class ", id, ", expected from 0 to ",
                                options_.num_classes - 1));
    }
    if (options_.target_class_ids.empty())
      throw InvalidArgument(cat("metric [", name(), "]: no target_class_ids, expected some"));
    targets_ = at::tensor(options_.target_class_ids, at::kLong);
    matrix_ = add_variable("total_confusion_matrix", {options_.num_classes, options_.num_classes},
                           options_.dtype);
  }

  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    const Tensor labels = classes_of(y_true, options_.sparse_y_true);
    const Tensor predictions =
        threshold_ ? y_pred.ge(*threshold_) : classes_of(y_pred, options_.sparse_y_pred);
    const int64_t classes = options_.num_classes;
    const Tensor y = labels.reshape({-1}).to(at::kLong);
    const Tensor p = predictions.reshape({-1}).to(at::kLong);
    if (y.numel() != p.numel()) wrong_shapes(name().c_str(), y_true, y_pred);
    Tensor known =
        y.ge(0).logical_and_(y.lt(classes)).logical_and_(p.ge(0)).logical_and_(p.lt(classes));
    if (options_.ignore_class) known.logical_and_(y.ne(*options_.ignore_class));
    // One more cell takes what is left out.
    const Tensor cell = (y * classes + p).masked_fill_(known.logical_not(), classes * classes);
    const Tensor sums = at::zeros({classes * classes + 1}, y.options().dtype(options_.dtype))
                            .index_add_(0, cell, weights_of(sample_weight, labels));
    matrix_.assign_add(sums.slice(0, 0, classes * classes).view({classes, classes}));
  }

  Tensor result() const override {
    const Tensor matrix = matrix_.read_value();
    const Tensor targets = targets_.to(matrix.device());
    const Tensor hits = matrix.diagonal().index_select(0, targets).to(at::kFloat);
    const Tensor all =
        (matrix.sum(0) + matrix.sum(1) - matrix.diagonal()).index_select(0, targets).to(at::kFloat);
    const Tensor occurs = all.gt(1e-9);
    const Tensor scores = (hits / (all + kEpsilon)).masked_fill(occurs.logical_not(), 0);
    return scores.sum() / (occurs.sum() + kEpsilon);
  }

 private:
  Tensor classes_of(const Tensor& values, bool sparse) const {
    return sparse ? values : values.argmax(options_.axis);
  }

  Tensor weights_of(const Tensor& sample_weight, const Tensor& labels) {
    const auto options = labels.options().dtype(options_.dtype);
    if (!sample_weight.defined()) return at::ones({labels.numel()}, options);
    if (options_.dtype != at::kFloat && at::isFloatingType(sample_weight.scalar_type()) &&
        !warned_.exchange(true)) {
      log_warning("metric [", name(),
                  "]: weights of a floating dtype are cut to whole numbers; give the metric dtype "
                  "float32 to keep them");
    }
    return entry_weights(name(), sample_weight, labels.sizes()).reshape({-1}).to(options_.dtype);
  }

  IoUOptions options_;
  std::optional<double> threshold_;
  Tensor targets_;
  Variable matrix_;
  std::atomic<bool> warned_{false};
};

const char* dtype_name(at::ScalarType dtype) {
  return dtype == at::kFloat ? "float32" : dtype == at::kInt ? "int32" : "int64";
}

at::ScalarType dtype_from(const Json& json) {
  const std::string name = member<std::string>(json, "dtype", "int");
  if (name == "float32") return at::kFloat;
  if (name == "int32") return at::kInt;
  if (name == "int64" || name == "int") return at::kLong;
  throw DataLoss(cat("configuration [dtype]: \"", name, "\", expected int64, int32 or float32"));
}

std::vector<int64_t> all_classes(int64_t number) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < number; ++id) ids.push_back(id);
  return ids;
}

Json common_arguments(const IoUOptions& options) {
  return {{"num_classes", options.num_classes},
          {"dtype", dtype_name(options.dtype)},
          {"ignore_class", to_json(options.ignore_class)},
          {"sparse_y_pred", options.sparse_y_pred},
          {"axis", options.axis}};
}

template <class Options>
IoUOptions common_options(const Options& options) {
  IoUOptions common;
  common.num_classes = options.num_classes;
  common.name = options.name;
  common.dtype = options.dtype;
  common.ignore_class = options.ignore_class;
  common.sparse_y_pred = options.sparse_y_pred;
  common.axis = options.axis;
  return common;
}

std::shared_ptr<IoUImpl> make_union(Union kind, bool names_targets, bool names_sparse_y_true) {
  kind.arguments = common_arguments(kind.options);
  if (names_targets) kind.arguments["target_class_ids"] = kind.options.target_class_ids;
  if (names_sparse_y_true) kind.arguments["sparse_y_true"] = kind.options.sparse_y_true;
  return std::make_shared<IoUImpl>(std::move(kind));
}

template <class Options>
void read_common(const Json& json, Options& options) {
  options.num_classes = member<int64_t>(json, "num_classes", 0);
  options.dtype = dtype_from(json);
  options.ignore_class = optional_member<int64_t>(json, "ignore_class");
  options.sparse_y_pred = member<bool>(json, "sparse_y_pred", options.sparse_y_pred);
  options.axis = member<int64_t>(json, "axis", -1);
}

template <class Class, class Options>
Metric targeted_from(const Json& json, const std::string& name) {
  Options options;
  read_common(json, options);
  options.target_class_ids = member<std::vector<int64_t>>(json, "target_class_ids", {});
  if constexpr (std::is_same_v<Options, IoUOptions>)
    options.sparse_y_true = member<bool>(json, "sparse_y_true", true);
  return Class(with_name(options, name));
}

template <class Class, class Options>
Metric mean_from(const Json& json, const std::string& name) {
  Options options;
  read_common(json, options);
  if constexpr (std::is_same_v<Options, MeanIoUOptions>)
    options.sparse_y_true = member<bool>(json, "sparse_y_true", true);
  return Class(with_name(options, name));
}

}  // namespace

IoU::IoU(const IoUOptions& options) : Metric(make_union({"IoU", options}, true, true)) {}
MeanIoU::MeanIoU(const MeanIoUOptions& options)
    : Metric([&] {
        IoUOptions all = common_options(options);
        all.sparse_y_true = options.sparse_y_true;
        all.target_class_ids = all_classes(options.num_classes);
        return make_union({"MeanIoU", all}, false, true);
      }()) {}
OneHotIoU::OneHotIoU(const OneHotIoUOptions& options)
    : Metric([&] {
        IoUOptions all = common_options(options);
        all.sparse_y_true = false;
        all.target_class_ids = options.target_class_ids;
        return make_union({"OneHotIoU", all}, true, false);
      }()) {}
OneHotMeanIoU::OneHotMeanIoU(const OneHotMeanIoUOptions& options)
    : Metric([&] {
        IoUOptions all = common_options(options);
        all.sparse_y_true = false;
        all.target_class_ids = all_classes(options.num_classes);
        return make_union({"OneHotMeanIoU", all}, false, false);
      }()) {}
BinaryIoU::BinaryIoU(const BinaryIoUOptions& options)
    : Metric([&] {
        Union kind{"BinaryIoU",
                   {.num_classes = 2,
                    .target_class_ids = options.target_class_ids,
                    .name = options.name,
                    .dtype = options.dtype},
                   options.threshold};
        kind.arguments = {{"target_class_ids", options.target_class_ids},
                          {"threshold", options.threshold},
                          {"dtype", dtype_name(options.dtype)}};
        return std::make_shared<IoUImpl>(std::move(kind));
      }()) {}

MetricFamily iou_metrics() {
  static const std::vector<MetricEntry> kEntries = {
      {"IoU", targeted_from<IoU, IoUOptions>, {}, "num_classes"},
      {"MeanIoU", mean_from<MeanIoU, MeanIoUOptions>, {}, "num_classes"},
      {"OneHotIoU", targeted_from<OneHotIoU, OneHotIoUOptions>, {}, "num_classes"},
      {"OneHotMeanIoU", mean_from<OneHotMeanIoU, OneHotMeanIoUOptions>, {}, "num_classes"},
      {"BinaryIoU", [](const Json& json, const std::string& name) -> Metric {
         BinaryIoUOptions options;
         options.target_class_ids = member<std::vector<int64_t>>(json, "target_class_ids", {0, 1});
         options.threshold = member<double>(json, "threshold", 0.5);
         options.dtype = dtype_from(json);
         return BinaryIoU(with_name(options, name));
       }}};
  return kEntries;
}

}  // namespace tutti::keras::metrics
