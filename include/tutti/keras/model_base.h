#pragma once
// The base of every model: weights, the steps of the training loop, fit, evaluate and predict.

#include <atomic>
#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/distribute/strategy.h"
#include "tutti/keras/layer.h"
#include "tutti/keras/training.h"

namespace tutti::keras {

class ModelBody;  // src/keras/model/model_body.h

/// One replica's part of a step. What is one tensor stands in `x`, `y`, `sample_weight`, which may
/// be undefined; several tensors, or tensors by name, stand in the nests, and then the tensor is
/// undefined.
struct Batch {
  Tensor x;
  Tensor y;
  Tensor sample_weight;
  Nest x_nest = {};
  Nest y_nest = {};
  Nest sample_weight_nest = {};
  /// Whichever of the two there is; None when there is neither.
  Nest inputs() const { return x.defined() ? Nest(x) : x_nest; }
  Nest targets() const { return y.defined() ? Nest(y) : y_nest; }
  Nest sample_weights() const {
    return sample_weight.defined() ? Nest(sample_weight) : sample_weight_nest;
  }
  /// Of the first input.
  int64_t rows() const;
};

/// A line of the table of summary().
struct SummaryRow {
  std::string name;
  std::string class_name;
  std::string output_shape;
  int64_t params = 0;
  std::string connected_to = {};
};

/// What of a file's weights goes where, for load_weights.
struct LoadWeightsOptions {
  /// Weights that the file has not, or has in another shape, stay as they are, and what else is in
  /// the file is passed over: one warning names both.
  bool skip_mismatch = false;
  /// Goes by names in files of Tutti's too, where the default goes by place.
  bool by_name = false;
};

/// Base of every model; a user may derive from it and override call, train_step, test_step or
/// predict_step. docs/models.md has examples.
///
/// A model of one input and one output overrides `call`; one of several overrides `call_all`. Its
/// layers and own variables are made known by `track`, or by overriding `layers`; layers that were
/// not built are by the first call.
///
/// Belongs to the strategy that was current when it was made. One user thread at a time.
class Model {
 public:
  virtual ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// The forward computation. Inside `run` every replica calls it for its part. The default asks
  /// call_all, and is InvalidArgument for several outputs.
  virtual Tensor call(const Tensor& x, bool training);
  /// The same for several inputs and outputs, in lists or by name. The default takes one input, and
  /// asks call.
  virtual Nest call_all(const Nest& inputs, bool training);
  /// Builds when needed, casts floating inputs to the compute dtype of the model's policy, then
  /// call(). Integers stay what they are.
  Tensor operator()(const Tensor& x, bool training = false);
  Nest operator()(const Nest& inputs, bool training = false);
  Nest operator()(const std::vector<Tensor>& inputs, bool training = false);
  /// The model as a layer of another one, in a functional graph. Sequential and Functional only
  /// (InvalidArgument; see as_layer).
  KerasTensor operator()(const KerasTensor& input) const { return layer()(input); }
  KerasTensor operator()(const std::vector<KerasTensor>& inputs) const { return layer()(inputs); }
  operator layers::Layer() const { return layer(); }  // NOLINT: `Sequential({model, Dense(1)})`
  layers::Layer layer() const;

  /// Makes the weights for inputs of this shape (batch dimension included, -1 unknown). The default
  /// calls the model with a batch of one row of zeros.
  virtual void build(const layers::Shape& input_shape);
  /// The default: it was built or called, or all its layers are built.
  virtual bool built() const;
  /// The layers in the order in which they were added. The default gives those of track().
  virtual std::vector<layers::Layer> layers() const;
  /// By name; NotFound lists those there are.
  layers::Layer get_layer(const std::string& name) const;
  /// Of the outputs of the model: a Functional's keys or layers; empty where they are not known
  /// before a call.
  virtual std::vector<std::string> output_names() const { return {}; }

  /// Before the model is built all of these throw FailedPrecondition. The model's own variables
  /// come first, then those of its layers.
  std::vector<Variable> weights() const;
  std::vector<Variable> trainable_variables() const;
  std::vector<Variable> non_trainable_variables() const;
  /// All weights with the names by which files know them.
  virtual std::vector<std::pair<std::string, Variable>> named_variables() const;
  /// Copies of the weights, Keras' layouts and order.
  std::vector<Tensor> get_weights() const;
  /// Shapes are checked before anything changes.
  void set_weights(const std::vector<Tensor>& weights);
  int64_t count_params() const;
  /// False: nothing of the model is trained, nor are its layers in other models; fit looks at it
  /// when it begins. Setting it sets it for all layers.
  bool trainable() const;
  void set_trainable(bool trainable);
  /// The table of Keras 3, 80 columns wide; of a functional model that is no chain with the layers
  /// that each is connected to.
  void summary(std::ostream& out) const;
  void summary() const;

  /// What this replica's last call has added by add_loss, here and in the layers, and the penalties
  /// of regularisation; one scalar each, with gradient.
  std::vector<Tensor> losses() const;
  /// From within `call` of a model of one's own: adds a scalar (the sum of a larger tensor) to what
  /// compute_loss gives for this call (layers::LayerImpl::add_loss).
  void add_loss(const Tensor& loss);

  void compile(const CompileOptions& options);
  /// Arrays: sliced, shuffled and batched as Keras does.
  History fit(const Arrays& x, const Arrays& y, const FitOptions& options = {});
  /// Elements x, (x, y) or (x, y, sample_weight), batched by the global size; each of them may be a
  /// tuple or a map. Distributed by the library.
  History fit(const data::Dataset<Nest>& dataset, const FitOptions& options = {});
  History fit(const distribute::DistributedDataset<Nest>& dataset, const FitOptions& options = {});
  Logs evaluate(const Arrays& x, const Arrays& y, const EvaluateOptions& options = {});
  Logs evaluate(const data::Dataset<Nest>& dataset, const EvaluateOptions& options = {});
  Logs evaluate(const distribute::DistributedDataset<Nest>& dataset,
                const EvaluateOptions& options = {});
  /// The outputs of all batches joined along axis 0, in order, on the CPU. InvalidArgument for a
  /// model of several outputs: predict_all gives these in the model's structure.
  Tensor predict(const Arrays& x, const PredictOptions& options = {});
  Tensor predict(const data::Dataset<Nest>& dataset, const PredictOptions& options = {});
  Tensor predict(const distribute::DistributedDataset<Nest>& dataset,
                 const PredictOptions& options = {});
  Nest predict_all(const Arrays& x, const PredictOptions& options = {});
  Nest predict_all(const data::Dataset<Nest>& dataset, const PredictOptions& options = {});
  Nest predict_all(const distribute::DistributedDataset<Nest>& dataset,
                   const PredictOptions& options = {});
  /// One step on the whole batch, cut among the replicas, whatever steps_per_execution is. The
  /// numbers are means since the last reset_metrics: these calls reset nothing.
  Logs train_on_batch(const Arrays& x, const Arrays& y, const Arrays& sample_weight = {},
                      const std::map<int64_t, double>& class_weight = {});
  Logs test_on_batch(const Arrays& x, const Arrays& y, const Arrays& sample_weight = {});
  /// One output: a leaf.
  Nest predict_on_batch(const Arrays& x);

  /// What each replica does with its part of a step. May be overridden; called inside `run`.
  virtual void train_step(const Batch& batch);
  virtual void test_step(const Batch& batch);
  /// A Tensor is a Nest: `return (*this)(batch.x);` does.
  virtual Nest predict_step(const Batch& batch);
  /// The compiled losses of this replica plus the penalties, divided so that the sum over replicas
  /// is the loss of the whole step: by the step's true number of samples, or of those that the mask
  /// of y_pred leaves. In float32. Records `loss`, and `<output>_loss` where several outputs have
  /// one. Replica context. InvalidArgument without a loss, or without labels for it.
  Tensor compute_loss(const Batch& batch, const Nest& y_pred);
  /// Updates the compiled metrics.
  void update_metrics(const Batch& batch, const Nest& y_pred);

  /// The compiled metrics, "loss" first, as far as a first batch has made them.
  std::vector<metrics::Metric> metrics() const;
  /// "loss", then the names of metrics_result(), as far as they are known.
  std::vector<std::string> metrics_names() const;
  /// "loss" and the compiled metrics, over all replicas, names sorted.
  Logs metrics_result();
  void reset_metrics();
  bool stop_training = false;
  /// Of the compiled model. FailedPrecondition before compile().
  optimizers::Optimizer& optimizer();
  bool compiled() const;

  /// Writes architecture, weights, optimizer (docs/formats.md) to one file, by temporary file and
  /// rename. Unimplemented for a model of a class of the user's own: save_weights, or
  /// train::Checkpoint, keep what is in it. It and the next two are called outside replicas
  /// (FailedPrecondition).
  void save(const std::string& path) const;
  void save_weights(const std::string& path) const;
  /// The architecture alone, as text from which model_from_json makes a model with new weights.
  /// Unimplemented for a model of a class of the user's own, FailedPrecondition before it is built.
  std::string to_json() const;
  /// Of a file of Tutti's (of save, too) the weights by place. Of a safetensors file of another
  /// program by name, where "." is "/": PyTorch's "hidden.weight" is a TorchModel's. Dtypes are
  /// converted. InvalidArgument names what is missing in the file, what is in it besides and what
  /// has another shape, or NotFound and DataLoss what is wrong with it; nothing is changed then.
  void load_weights(const std::string& path, const LoadWeightsOptions& options = {});

  distribute::Strategy& strategy() const { return *strategy_; }
  /// Unless it was given: the class' name in snake case with a number behind it.
  const std::string& name() const;
  void set_name(const std::string& name);
  const DTypePolicy& dtype_policy() const { return policy_; }

 protected:
  explicit Model(std::string name = "");
  explicit Model(std::shared_ptr<ModelBody> body);
  /// `layers::Layer hidden = track(Dense(16));` makes the layer the model's.
  template <class L>
  requires std::derived_from<L, layers::Layer> L track(L layer) {
    track_layer(layer);
    return layer;
  }
  Variable track(const Variable& variable);
  /// What summary() prints. The default: a row for each layer.
  virtual std::vector<SummaryRow> summary_rows() const;
  /// Of a batch that was just computed inside a replica: the masks that belong to `outputs`, for
  /// compute_loss and update_metrics.
  void note_masks(const std::vector<Tensor>& outputs, const std::vector<Tensor>& masks);
  /// Gives the weights, once they are there, what a checkpoint left for them. Calls and what asks
  /// for the weights do it by themselves.
  void take_waiting_state() const;
  /// Throws FailedPrecondition in the name of `operation` unless the model is built.
  void check_built(const char* operation) const;

 private:
  friend class TrainLoop;
  friend struct ModelFile;
  friend class ModelState;
  friend class ModelLayer;
  struct Training;  // src/keras/training/training_state.h
  void track_layer(const layers::Layer& layer);
  void enter(layers::CallScope& scope);
  void clear_losses();
  Tensor ready(const Tensor& x) const;
  void build_before_call(const Nest& inputs);
  void call_with_zeros(const Nest& like);

  mutable std::string name_;
  mutable std::once_flag named_;
  distribute::Strategy* strategy_;
  DTypePolicy policy_;
  std::shared_ptr<ModelBody> body_;  ///< of a Sequential or Functional
  std::vector<layers::Layer> layers_;
  std::vector<Variable> variables_;
  bool trainable_ = true;
  std::atomic<bool> called_{false};
  std::atomic<layers::CallLosses*> call_losses_{nullptr};
  bool in_first_call_ = false;
  mutable std::shared_ptr<const Nest> waiting_state_;  ///< of a checkpoint, for weights to come
  std::unique_ptr<Training> training_;
};

/// A model as a layer of another one: of a class of the user's own too. Its output shape is found
/// by a call with zeros.
layers::Layer as_layer(std::shared_ptr<Model> model);

/// The weights as a part of a train::Checkpoint, under `weights/<layer>/<weight>` in its file; what
/// was compiled is not in it: give model.optimizer() beside it. They come back whatever strategy
/// and number of replicas they were saved with, by name where both sides have the same names, else
/// by place. A model that is not built takes them when it is, before its first call; there is
/// nothing to save then (FailedPrecondition). The model must outlive it.
std::shared_ptr<Trackable> trackable(Model& model);

}  // namespace tutti::keras
