#pragma once
// A parameter server whose calls are named methods with nests: over a wire, or into a log.

#include <map>
#include <string>

#include "ps/parameter_server.h"
#include "remote/method_server.h"

namespace tutti::ps {

class AskingServer : public ParameterServer {
 private:
  /// Does `method` (a name of methods_of) and gives its reply; throws its error.
  virtual Nest ask(const std::string& method, const Nest& request) = 0;

  int64_t do_create(const VariableDescription& description, const Tensor& value) final;
  std::vector<VariableInfo> do_variables() final;
  ReadResult do_read(const std::vector<int64_t>& variables) final;
  Tensor do_gather(int64_t variable, const Tensor& rows) final;
  Applied do_write(const Tag& tag, Write kind, const std::vector<int64_t>& variables,
                   const std::vector<Tensor>& values) final;
  Applied do_scatter(const Tag& tag, Write kind, int64_t variable,
                     const IndexedSlices& slices) final;
  int64_t do_create_optimizer(const OptimizerDescription& description) final;
  Applied do_push(const Tag& tag, int64_t optimizer, const std::vector<Gradient>& gradients) final;
  int64_t do_iterations(int64_t optimizer) final;
  Applied do_set_learning_rate(const Tag& tag, int64_t optimizer, double rate) final;
  Nest do_state() final;
  void do_set_state(const Nest& state) final;
};

/// The methods of a server, for a remote::MethodServer; `server` must outlive them.
std::map<std::string, remote::Method> methods_of(ParameterServer& server);

/// Whether a method that gave this reply has changed the server.
bool has_changed(const std::string& method, const Nest& reply);

}  // namespace tutti::ps
