#pragma once
// A parameter server in this process: the oracle of the others, and what they serve.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "ps/parameter_server.h"
#include "ps/seen_tags.h"
#include "tutti/distribute/variable.h"
#include "tutti/keras/optimizers/optimizer.h"

namespace tutti::ps {

/// Runs every call on the caller's thread, one after the other. Its variables belong to no
/// strategy, whatever scope the caller is in.
class LocalServer final : public ParameterServer {
 public:
  LocalServer() = default;

 private:
  struct Held {
    VariableDescription description;
    Variable variable;
  };
  struct HeldOptimizer {
    OptimizerDescription description;
    keras::optimizers::Optimizer optimizer;
    std::vector<Variable> variables;
  };
  struct Contents {
    std::vector<Held> variables;  // an id is an index
    std::vector<HeldOptimizer> optimizers;
    SeenTags seen;
    int64_t version = 0;
  };

  int64_t do_create(const VariableDescription& description, const Tensor& value) override;
  std::vector<VariableInfo> do_variables() override;
  ReadResult do_read(const std::vector<int64_t>& variables) override;
  Tensor do_gather(int64_t variable, const Tensor& rows) override;
  Applied do_write(const Tag& tag, Write kind, const std::vector<int64_t>& variables,
                   const std::vector<Tensor>& values) override;
  Applied do_scatter(const Tag& tag, Write kind, int64_t variable,
                     const IndexedSlices& slices) override;
  int64_t do_create_optimizer(const OptimizerDescription& description) override;
  Applied do_push(const Tag& tag, int64_t optimizer,
                  const std::vector<Gradient>& gradients) override;
  int64_t do_iterations(int64_t optimizer) override;
  Applied do_set_learning_rate(const Tag& tag, int64_t optimizer, double rate) override;
  Nest do_state() override;
  void do_set_state(const Nest& state) override;

  static Held& held(Contents& contents, const char* operation, int64_t id);
  static HeldOptimizer& held_optimizer(Contents& contents, const char* operation, int64_t id);
  static int64_t add_optimizer(Contents& contents, const OptimizerDescription& description);
  static Contents contents_of(const Nest& state);
  /// Makes `change` unless it was made before; it must throw before it changes anything.
  template <class Change>
  Applied once(const Tag& tag, Change change) TUTTI_REQUIRES(mutex_);

  Mutex mutex_;
  Contents contents_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::ps
