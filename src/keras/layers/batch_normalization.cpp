// Statistics: of each replica's rows by default, of all replicas' rows when synchronized. Moving
// statistics are each replica's own, kept without communication; outside replicas, and in files,
// they are the first replica's (what TensorFlow's numbers show, see
// tests/golden/data/training.json). Synchronized ones are the same everywhere.

#include "keras/layers/config.h"
#include "tutti/distribute/strategy.h"

namespace tutti::keras::layers {
namespace {

class BatchNormalizationImpl : public LayerImpl {
 public:
  explicit BatchNormalizationImpl(const BatchNormalizationOptions& options)
      : LayerImpl("BatchNormalization", options.name, options.input_shape), options_(options) {}
  std::string class_name() const override { return "BatchNormalization"; }
  std::string config() const override {
    Json json = base_config(*this);
    json.update({{"axis", options_.axis},
                 {"momentum", options_.momentum},
                 {"epsilon", options_.epsilon},
                 {"center", options_.center},
                 {"scale", options_.scale},
                 {"synchronized", options_.synchronized}});
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    const auto rank = static_cast<int64_t>(input.size());
    if (rank < 2 || input.back() < 1 || (options_.axis != -1 && options_.axis != rank - 1)) {
      throw InvalidArgument(cat("BatchNormalization [", name(), "]: input of shape ",
                                shape_text(input), " with axis ", options_.axis,
                                ", expected rank 2 or more, a known last dimension and axis -1"));
    }
    return input;
  }

 protected:
  bool has_weights() const override { return true; }
  void build(const Shape& input) override {
    const Shape shape{input.back()};
    if (options_.scale)
      gamma_ = add_weight({.name = "gamma", .shape = shape, .initializer = initializers::Ones()});
    if (options_.center)
      beta_ = add_weight({.name = "beta", .shape = shape, .initializer = initializers::Zeros()});
    moving_mean_ = add_moving("moving_mean", shape, initializers::Zeros());
    moving_variance_ = add_moving("moving_variance", shape, initializers::Ones());
  }
  Tensor call(const Tensor& input, bool training) override {
    const Tensor scale = options_.scale ? gamma_.value() : Tensor();
    const Tensor shift = options_.center ? beta_.value() : Tensor();
    if (!training || !trainable())
      return normalized(input, moving_mean_.value(), moving_variance_.value(), scale, shift);
    if (options_.synchronized && distribute::get_replica_context() != nullptr)
      return synchronized_call(input, scale, shift);
    if (input.numel() == 0)
      return normalized(input, moving_mean_.value(), moving_variance_.value(), scale, shift);
    const Tensor channels_first = with_channels_second(input);
    auto [output, mean, inverse_deviation] = at::native_batch_norm(
        channels_first, scale, shift, {}, {}, /*training=*/true, /*momentum=*/0, options_.epsilon);
    {
      at::NoGradGuard no_grad;
      move(mean, inverse_deviation.pow(-2).sub_(options_.epsilon));
    }
    return like_input(output, input);
  }

 private:
  Variable add_moving(const char* weight_name, const Shape& shape, const Initializer& initializer) {
    return add_weight({.name = weight_name,
                       .shape = shape,
                       .initializer = initializer,
                       .trainable = false,
                       .synchronization = VariableSynchronization::kOnRead,
                       .aggregation = VariableAggregation::kOnlyFirstReplica});
  }
  static Tensor with_channels_second(const Tensor& input) {
    if (input.dim() == 2) return input;
    if (input.dim() == 4) return to_channels_first(input);
    return input.reshape({-1, input.size(-1)});
  }
  static Tensor like_input(const Tensor& output, const Tensor& input) {
    if (input.dim() == 4) return to_channels_last(output);
    return input.dim() == 2 ? output : output.view(input.sizes());
  }
  Tensor normalized(const Tensor& input, const Tensor& mean, const Tensor& variance,
                    const Tensor& scale, const Tensor& shift) const {
    Tensor factor = (variance + options_.epsilon).rsqrt();
    if (scale.defined()) factor = factor * scale;
    Tensor offset = -mean * factor;
    if (shift.defined()) offset = offset + shift;
    return input * factor + offset;
  }
  void move(const Tensor& mean, const Tensor& variance) {
    move_one(moving_mean_, mean);
    move_one(moving_variance_, variance);
  }
  void move_one(Variable& moving, const Tensor& batch) {
    const distribute::ReplicaContext* replica = distribute::get_replica_context();
    const bool one_copy = moving.strategy().parameter_device().has_value();
    if (one_copy && replica != nullptr && replica->replica_id_in_sync_group() > 0) return;
    Tensor value = moving.value();
    value.mul_(options_.momentum).add_(batch, 1 - options_.momentum);
    if (distribute::in_cross_replica_context()) moving.assign(value);  // there, value() was a copy
  }
  /// Sums, sums of squares and the number of rows are added over the replicas, with their
  /// gradients. Each replica brings them as its own mean and deviations, added in double: a float32
  /// sum of squares less the squared mean would lose digits where the mean is large.
  Tensor synchronized_call(const Tensor& input, const Tensor& scale, const Tensor& shift) {
    const int64_t channels = input.size(-1);
    const Tensor rows = input.reshape({input.numel() / channels, channels});
    const auto number = static_cast<double>(rows.size(0));
    Tensor mean = rows.sum(0).to(at::kDouble), deviations = mean;  // zeros of an empty batch
    if (number > 0) {
      const auto [variance, own_mean] = at::var_mean(rows, at::IntArrayRef{0}, /*correction=*/0);
      mean = own_mean.to(at::kDouble);
      deviations = variance.to(at::kDouble) * number;
    }
    const Tensor packed = at::cat({mean * number, deviations + mean.square() * number,
                                   at::full({1}, number, mean.options())});
    const Tensor sums =
        distribute::get_replica_context()->all_reduce(distribute::ReduceOp::kSum, packed);
    const Tensor count = sums.narrow(0, 2 * channels, 1).detach().clamp_min(1);
    const Tensor all_mean = sums.narrow(0, 0, channels) / count;
    const Tensor variance =
        (sums.narrow(0, channels, channels) / count - all_mean.square()).clamp_min(0);
    {
      at::NoGradGuard no_grad;
      if (sums[2 * channels].item<double>() > 0) {
        move(all_mean.detach().to(input.scalar_type()), variance.detach().to(input.scalar_type()));
      }
    }
    Tensor factor = (variance + options_.epsilon).rsqrt().to(input.scalar_type());
    if (scale.defined()) factor = factor * scale;
    const Tensor output = (input - all_mean.to(input.scalar_type())) * factor;
    return shift.defined() ? output + shift : output;
  }

  BatchNormalizationOptions options_;
  Variable gamma_, beta_, moving_mean_, moving_variance_;
};

}  // namespace

BatchNormalization::BatchNormalization(const BatchNormalizationOptions& options)
    : Layer(std::make_shared<BatchNormalizationImpl>(options)) {}

namespace {

Layer batch_normalization_from(const Json& json, const LayerBase& base) {
  BatchNormalizationOptions options;
  options.axis = member<int64_t>(json, "axis", -1);
  options.momentum = member<double>(json, "momentum", 0.99);
  options.epsilon = member<double>(json, "epsilon", 1e-3);
  options.center = member<bool>(json, "center", true);
  options.scale = member<bool>(json, "scale", true);
  options.synchronized = member<bool>(json, "synchronized", false);
  options.name = base.name;
  options.input_shape = base.input_shape;
  return BatchNormalization(options);
}

constexpr LayerEntry kBatchNormalization[] = {{"BatchNormalization", batch_normalization_from}};

}  // namespace

LayerFamily batch_normalization_layers() { return kBatchNormalization; }

}  // namespace tutti::keras::layers
