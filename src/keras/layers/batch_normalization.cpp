// Statistics: of each replica's rows by default, of all replicas' rows when synchronized. Moving
// statistics are each replica's own, kept without communication; outside replicas, and in files,
// they are the first replica's (what TensorFlow's numbers show, see
// tests/golden/data/training.json). Synchronized ones are the same everywhere.

#include "keras/layers/normalization.h"
#include "tutti/distribute/strategy.h"

namespace tutti::keras::layers {
namespace {

struct BatchNormalizationArguments {
  BatchNormalizationOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("axis", options.axis);
    io("momentum", options.momentum);
    visit_affine(io, options);
    io("moving_mean_initializer", options.moving_mean_initializer);
    io("moving_variance_initializer", options.moving_variance_initializer);
    io("synchronized", options.synchronized);
  }
};

class BatchNormalizationImpl final : public AffineLayer<BatchNormalizationArguments> {
 public:
  explicit BatchNormalizationImpl(BatchNormalizationArguments arguments)
      : AffineLayer("BatchNormalization", std::move(arguments)) {}
  bool uses_masks() const override { return true; }
  Shape compute_output_shape(const Shape& input) const override {
    const auto rank = static_cast<int64_t>(input.size());
    const int64_t axis = options().axis < 0 ? options().axis + rank : options().axis;
    if (rank < 2 || axis < 1 || axis >= rank || input[static_cast<std::size_t>(axis)] < 1) {
      throw InvalidArgument(cat("BatchNormalization [", name(), "]: input of shape ",
                                shape_text(input), " with axis ", options().axis,
                                ", expected rank 2 or more, and an axis behind the batch's of "
                                "known size"));
    }
    return input;
  }

 protected:
  void build(const Shape& input) override {
    const auto rank = static_cast<int64_t>(input.size());
    axis_ = options().axis < 0 ? options().axis + rank : options().axis;
    last_ = axis_ == rank - 1;
    const Shape shape{input[static_cast<std::size_t>(axis_)]};
    add_affine(shape);
    moving_mean_ = add_moving("moving_mean", shape, options().moving_mean_initializer);
    moving_variance_ = add_moving("moving_variance", shape, options().moving_variance_initializer);
  }
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& context) override {
    const Tensor x = widened(inputs.at(0));
    const Tensor mask = context.training ? context.mask(0) : Tensor();
    return {narrowed(output_of(x, mask, context.training && trainable()))};
  }

 private:
  Tensor output_of(const Tensor& input, const Tensor& mask, bool training) {
    if (training && options().synchronized && distribute::get_replica_context() != nullptr)
      return synchronized_output(input, mask);
    if (training && input.numel() > 0) {
      if (!mask.defined()) return normalized_batch(input);
      const Tensor rows = rows_of(input, mask);
      if (rows.size(0) > 0) {
        const auto [variance, mean] = at::var_mean(rows, at::IntArrayRef{0}, /*correction=*/0);
        move(mean, variance);
        return normalized(input, mean, variance);
      }
    }
    return normalized(input, widened(moving_mean_.value()), widened(moving_variance_.value()));
  }
  Tensor normalized_batch(const Tensor& input) {
    const Tensor channels_second = with_channels_second(input);
    auto [output, mean, inverse_deviation] =
        at::native_batch_norm(channels_second, gamma(), beta(), {}, {}, /*training=*/true,
                              /*momentum=*/0, options().epsilon);
    move(mean, inverse_deviation.detach().pow(-2).sub_(options().epsilon));
    return like_input(output, input);
  }
  Variable add_moving(const char* weight_name, const Shape& shape, const Initializer& initializer) {
    return add_weight({.name = weight_name,
                       .shape = shape,
                       .initializer = initializer,
                       .trainable = false,
                       .synchronization = VariableSynchronization::kOnRead,
                       .aggregation = VariableAggregation::kOnlyFirstReplica});
  }
  /// As views where LibTorch takes them: [batch, channels, …].
  Tensor with_channels_second(const Tensor& input) const {
    if (axis_ == 1) return input;
    if (last_ && input.dim() != 4) return input.reshape({-1, input.size(-1)});
    return input.movedim(axis_, 1);
  }
  Tensor like_input(const Tensor& output, const Tensor& input) const {
    if (axis_ == 1) return output;
    if (last_ && input.dim() != 4) return output.view(input.sizes());
    return output.movedim(1, axis_);
  }
  /// [rows, channels]: every position of every sample, or those that the mask counts.
  Tensor rows_of(const Tensor& input, const Tensor& mask) const {
    const Tensor channels_last = last_ ? input : input.movedim(axis_, -1);
    const int64_t channels = input.size(axis_);
    const Tensor rows = channels_last.reshape({input.numel() / channels, channels});
    if (!mask.defined()) return rows;
    if (!last_ || mask.dim() >= input.dim())
      throw InvalidArgument(cat("BatchNormalization [", name(), "]: a mask of shape ",
                                shape_text(mask.sizes()), " for an input of shape ",
                                shape_text(input.sizes()), " and axis ", axis_,
                                ", expected a mask of fewer axes, and channels last"));
    const Tensor counts =
        mask_for(mask, input.dim() - 1).expand(input.sizes().slice(0, input.dim() - 1));
    return rows.index({counts.reshape({-1})});
  }
  /// One number a channel, made to broadcast with the input.
  Tensor spread(const Tensor& numbers, const Tensor& input) const {
    if (last_) return numbers;
    Shape shape(static_cast<std::size_t>(input.dim()), 1);
    shape[static_cast<std::size_t>(axis_)] = -1;
    return numbers.view(shape);
  }
  Tensor normalized(const Tensor& input, const Tensor& mean, const Tensor& variance) const {
    Tensor factor = (variance + options().epsilon).rsqrt();
    if (const Tensor scale = gamma(); scale.defined()) factor = factor * scale;
    Tensor offset = -mean * factor;
    if (const Tensor shift = beta(); shift.defined()) offset = offset + shift;
    return input * spread(factor, input) + spread(offset, input);
  }
  void move(const Tensor& mean, const Tensor& variance) {
    at::NoGradGuard no_grad;
    move_one(moving_mean_, mean.detach());
    move_one(moving_variance_, variance.detach());
  }
  void move_one(Variable& moving, const Tensor& batch) {
    const distribute::ReplicaContext* replica = distribute::get_replica_context();
    const bool one_copy = moving.strategy().parameter_device().has_value();
    if (one_copy && replica != nullptr && replica->replica_id_in_sync_group() > 0) return;
    Tensor value = moving.value();
    value.mul_(options().momentum).add_(batch, 1 - options().momentum);
    if (distribute::in_cross_replica_context()) moving.assign(value);  // there, value() was a copy
  }
  /// Sums, sums of squares and the number of rows are added over the replicas, with their
  /// gradients. Each replica brings them as its own mean and deviations, added in double: a float32
  /// sum of squares less the squared mean would lose digits where the mean is large.
  Tensor synchronized_output(const Tensor& input, const Tensor& mask) {
    const int64_t channels = input.size(axis_);
    const Tensor rows = rows_of(input, mask);
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
    if (sums[2 * channels].item<double>() > 0)
      move(all_mean.to(input.scalar_type()), variance.to(input.scalar_type()));
    Tensor factor = (variance + options().epsilon).rsqrt().to(input.scalar_type());
    if (const Tensor scale = gamma(); scale.defined()) factor = factor * scale;
    const Tensor output =
        (input - spread(all_mean.to(input.scalar_type()), input)) * spread(factor, input);
    const Tensor shift = beta();
    return shift.defined() ? output + spread(shift, input) : output;
  }

  int64_t axis_ = 1;
  bool last_ = true;
  Variable moving_mean_, moving_variance_;
};

}  // namespace

BatchNormalization::BatchNormalization(const BatchNormalizationOptions& options)
    : Layer(std::make_shared<BatchNormalizationImpl>(BatchNormalizationArguments{options})) {}

namespace {

constexpr LayerEntry kBatchNormalization[] = {
    {"BatchNormalization", make_configured<BatchNormalizationImpl>}};

}  // namespace

LayerFamily batch_normalization_layers() { return kBatchNormalization; }

}  // namespace tutti::keras::layers
