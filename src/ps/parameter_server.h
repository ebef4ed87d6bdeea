#pragma once
// One parameter server: variables, the optimizers that change them, and who has pushed what.
// docs/parameter_servers.md.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/tensor/indexed_slices.h"
#include "tutti/tensor/nest.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::ps {

/// A variable of a server, or the shard of one.
struct VariableDescription {
  std::string name;
  TensorSpec spec;
  bool trainable = true;
};
struct VariableInfo {
  int64_t id = 0;
  VariableDescription description;
};

/// Under which a change counts once: the same tag again changes nothing. Sequences of one worker's
/// incarnation begin at 1, each is used for one change, and they may arrive out of order.
/// InvalidArgument and OutOfRange leave a tag unused: it is the next change's. After any other
/// error the change may still be made: it is asked for again under its tag, or the worker begins a
/// new incarnation, a larger number, at sequence 1. A number that is left out is missing for good.
struct Tag {
  std::string worker;
  uint64_t incarnation = 0;
  uint64_t sequence = 0;
};

enum class Write { kAssign, kAdd, kSub };

/// `rows` undefined: the gradient of all of it. Else values [n, …] of the rows `rows` [n] (int64),
/// of which repeats add up.
struct Gradient {
  int64_t variable = 0;
  Tensor values;
  Tensor rows = {};
};

/// An optimizer of keras::optimizers for some of the server's variables, without what must be done
/// where all gradients of a step are (clipping, loss scale, accumulation).
struct OptimizerDescription {
  std::string name;
  std::string class_name;
  std::string config;                  // as keras::optimizers::Optimizer::config
  std::vector<int64_t> variables;      // in this order
  std::vector<int64_t> without_decay;  // of them, those that get no weight decay
};

struct Applied {
  bool repeated = false;  // it had been applied before
  int64_t version = 0;    // changes that the server has made in all
};

struct ReadResult {
  std::vector<Tensor> values;
  int64_t version = 0;
};

/// The service as its callers see it, in this process or another. Any thread may call; each call is
/// done as a whole: none sees the half of another one, and one that throws has changed nothing.
/// Tensors that are given are not kept, tensors that come back are the caller's own. An id or
/// optimizer that is not there is NotFound.
class ParameterServer {
 public:
  virtual ~ParameterServer() = default;

  /// Makes a variable, of dense CPU values. One that is there already is left alone and its id
  /// given when its description is the same; AlreadyExists when it is not.
  int64_t create(const VariableDescription& description, const Tensor& initial_value);
  /// Those that are there, by id.
  std::vector<VariableInfo> variables();

  /// Copies of several variables as they are at one moment.
  ReadResult read(const std::vector<int64_t>& variables);
  /// Copies of rows (int64, any order, repeats). OutOfRange for one that is not there.
  Tensor gather(int64_t variable, const Tensor& rows);

  /// Several at once; shapes and dtypes must be the variables' (InvalidArgument).
  Applied write(const Tag& tag, Write kind, const std::vector<int64_t>& variables,
                const std::vector<Tensor>& values);
  /// Rows, one after the other. The dense_shape counts for nothing.
  Applied scatter(const Tag& tag, Write kind, int64_t variable, const IndexedSlices& slices);

  /// Makes an optimizer and its slots; as create for one of that name.
  int64_t create_optimizer(const OptimizerDescription& description);
  /// One update with gradients of some of the optimizer's variables (each at most once; the others
  /// stay). InvalidArgument for none, for other shapes and dtypes, and for rows out of range.
  Applied push(const Tag& tag, int64_t optimizer, const std::vector<Gradient>& gradients);
  /// Updates that the optimizer has made.
  int64_t iterations(int64_t optimizer);
  /// The rate of later updates. InvalidArgument as Optimizer::set_learning_rate.
  Applied set_learning_rate(const Tag& tag, int64_t optimizer, double learning_rate);

  /// All that the server holds, its tags too: a server that is given it is this one.
  Nest state();
  /// In place of all that it holds. InvalidArgument for what is no state, then nothing is changed.
  void set_state(const Nest& state);

 private:
  virtual int64_t do_create(const VariableDescription& description, const Tensor& value) = 0;
  virtual std::vector<VariableInfo> do_variables() = 0;
  virtual ReadResult do_read(const std::vector<int64_t>& variables) = 0;
  virtual Tensor do_gather(int64_t variable, const Tensor& rows) = 0;
  virtual Applied do_write(const Tag& tag, Write kind, const std::vector<int64_t>& variables,
                           const std::vector<Tensor>& values) = 0;
  virtual Applied do_scatter(const Tag& tag, Write kind, int64_t variable,
                             const IndexedSlices& slices) = 0;
  virtual int64_t do_create_optimizer(const OptimizerDescription& description) = 0;
  virtual Applied do_push(const Tag& tag, int64_t optimizer,
                          const std::vector<Gradient>& gradients) = 0;
  virtual int64_t do_iterations(int64_t optimizer) = 0;
  virtual Applied do_set_learning_rate(const Tag& tag, int64_t optimizer, double rate) = 0;
  virtual Nest do_state() = 0;
  virtual void do_set_state(const Nest& state) = 0;
};

}  // namespace tutti::ps
