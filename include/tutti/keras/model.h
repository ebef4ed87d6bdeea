#pragma once
// Models: layers together, with the training loop of Keras.

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/distribute/strategy.h"
#include "tutti/keras/layer.h"
#include "tutti/keras/training.h"

namespace tutti::keras {

/// One replica's part of a step. `y` and `sample_weight` may be undefined.
struct Batch {
  Tensor x;
  Tensor y;
  Tensor sample_weight;
};

/// Base of every model; a user may derive from it and override call, train_step, test_step or
/// predict_step.
///
/// Belongs to the strategy that was current when it was made. One user thread at a time.
class Model {
 public:
  virtual ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// The forward computation. Inside `run` every replica calls it for its part.
  virtual Tensor call(const Tensor& x, bool training) = 0;
  /// Builds when needed, then call(). On integer or float input alike.
  Tensor operator()(const Tensor& x, bool training = false);
  /// Makes the weights for inputs of this shape (batch dimension included, -1 unknown).
  virtual void build(const layers::Shape& input_shape) = 0;
  virtual bool built() const = 0;
  /// The layers in the order in which they were added.
  virtual std::vector<layers::Layer> layers() const = 0;

  /// Before the model is built all of these throw FailedPrecondition.
  std::vector<Variable> weights() const;
  std::vector<Variable> trainable_variables() const;
  std::vector<Variable> non_trainable_variables() const;
  /// Copies of the weights, Keras' layouts and order.
  std::vector<Tensor> get_weights() const;
  /// Shapes are checked before anything changes.
  void set_weights(const std::vector<Tensor>& weights);
  int64_t count_params() const;
  /// The table of Keras 3.
  void summary(std::ostream& out) const;
  void summary() const;

  /// Regularisation penalties, one scalar each, with gradient.
  std::vector<Tensor> losses() const;

  void compile(const CompileOptions& options);
  /// Arrays: sliced, shuffled and batched as Keras does.
  History fit(const Tensor& x, const Tensor& y, const FitOptions& options = {});
  /// Elements x, (x, y) or (x, y, sample_weight), batched by the global size; distributed by the
  /// library.
  History fit(const data::Dataset<Nest>& dataset, const FitOptions& options = {});
  History fit(const distribute::DistributedDataset<Nest>& dataset, const FitOptions& options = {});
  Logs evaluate(const Tensor& x, const Tensor& y, const EvaluateOptions& options = {});
  Logs evaluate(const data::Dataset<Nest>& dataset, const EvaluateOptions& options = {});
  Logs evaluate(const distribute::DistributedDataset<Nest>& dataset,
                const EvaluateOptions& options = {});
  /// The outputs of all batches joined along axis 0, in order.
  Tensor predict(const Tensor& x, const PredictOptions& options = {});
  Tensor predict(const data::Dataset<Nest>& dataset, const PredictOptions& options = {});
  Tensor predict(const distribute::DistributedDataset<Nest>& dataset,
                 const PredictOptions& options = {});
  /// One step on the whole batch, cut among the replicas. Metrics are not reset.
  Logs train_on_batch(const Tensor& x, const Tensor& y, const Tensor& sample_weight = {});
  Logs test_on_batch(const Tensor& x, const Tensor& y, const Tensor& sample_weight = {});

  /// What each replica does with its part of a step. May be overridden; called inside `run`.
  virtual void train_step(const Batch& batch);
  virtual void test_step(const Batch& batch);
  virtual Tensor predict_step(const Batch& batch);
  /// The compiled loss of this replica plus the penalties, divided so that the sum over replicas is
  /// the loss of the whole step: by the step's true number of samples. Records the `loss` metric.
  /// Replica context.
  Tensor compute_loss(const Batch& batch, const Tensor& y_pred);
  /// Updates the compiled metrics.
  void update_metrics(const Batch& batch, const Tensor& y_pred);

  /// The compiled metrics, "loss" first, as far as a first batch has made them.
  std::vector<metrics::Metric> metrics() const;
  /// "loss" and the compiled metrics, over all replicas, names sorted.
  Logs metrics_result();
  void reset_metrics();
  bool stop_training = false;
  /// Of the compiled model. FailedPrecondition before compile().
  optimizers::Optimizer& optimizer();
  bool compiled() const;

  /// Writes architecture, weights, optimizer (docs/formats.md) to one file, by temporary file and
  /// rename. It and the next two are called outside replicas (FailedPrecondition).
  void save(const std::string& path) const;
  void save_weights(const std::string& path) const;
  void load_weights(const std::string& path);

  distribute::Strategy& strategy() const { return *strategy_; }
  const std::string& name() const { return name_; }

 protected:
  explicit Model(std::string name);

 private:
  friend class TrainLoop;
  friend struct ModelFile;
  struct Training;  // src/keras/training/training_state.h
  std::string name_;
  distribute::Strategy* strategy_;
  std::unique_ptr<Training> training_;
};

struct SequentialOptions {
  std::string name = "";
};

/// A stack of layers. Built at once when the first layer knows its input shape (or is an Input),
/// else by the first batch.
class Sequential : public Model {
 public:
  Sequential() : Sequential(std::vector<layers::Layer>{}) {}
  Sequential(std::initializer_list<layers::Layer> layers,
             const SequentialOptions& options = {})  // NOLINT
      : Sequential(std::vector<layers::Layer>(layers), options) {}
  explicit Sequential(std::vector<layers::Layer> layers, const SequentialOptions& options = {});
  ~Sequential() override;

  /// A layer of a name that is there already, or one that does not fit, is InvalidArgument, and the
  /// model is as it was.
  void add(const layers::Layer& layer);
  Tensor call(const Tensor& x, bool training) override;
  void build(const layers::Shape& input_shape) override;
  bool built() const override { return built_; }
  std::vector<layers::Layer> layers() const override { return layers_; }
  /// Batch dimension included; empty before the model is built.
  const layers::Shape& input_shape() const { return input_shape_; }

 private:
  void append(const layers::Layer& layer);
  void build_if_known();
  std::vector<layers::Layer> layers_;
  layers::Shape input_shape_;
  bool built_ = false;
};

struct LoadModelOptions {
  /// False: architecture and weights only, for a model whose loss or metrics are the user's own.
  bool compile = true;
};
/// The model that Model::save wrote, under the current strategy, built, compiled if it was: fit
/// goes on as if there had been no interruption. NotFound, InvalidArgument or DataLoss says what is
/// wrong with the file.
std::unique_ptr<Model> load_model(const std::string& path, const LoadModelOptions& options = {});

}  // namespace tutti::keras
