// losses.json: the losses of Keras with every kind of weight and reduction, and the helpers of
// tf.nn in the replicas of a strategy and in none.

#include "golden/golden_file.h"
#include "tutti/tutti.h"

namespace tutti::golden {
namespace {

using keras::losses::Loss;

// ---- keras/…

struct KerasCase {
  const GoldenFile& file;
  const Json& inputs;
  Verdict& verdict;
  at::Tensor y_true = file.tensor(inputs.at("y_true"));
  at::Tensor y_pred = file.tensor(inputs.at("y_pred"));

  Loss loss(const std::string& reduction) const {
    Json config = inputs.value("args", Json::object());
    config["reduction"] = reduction;
    return Loss::from_config(inputs.at("class"), config.dump());
  }
  void compare(const std::string& weighing, const Json& expected) const {
    at::Tensor weight;
    const Json& given = expected.contains("sample_weight") ? expected.at("sample_weight") : Json();
    if (given.is_number()) {
      weight = at::scalar_tensor(given.get<double>(), at::kFloat);
    } else if (!given.is_null()) {
      weight = file.tensor(given);
    }
    for (const auto& [reduction, value] : expected.items()) {
      if (reduction == "sample_weight") continue;
      const std::string what = cat(weighing, " ", reduction);
      if (value.is_object() && value.contains("error")) {
        if (verdict.differs(cat(weighing, "/", reduction))) continue;
        try {
          loss(reduction)(y_true, y_pred, weight);
          verdict.fail(cat(what, ": no error, expected ", value.at("error").get<std::string>()));
        } catch (const Error&) {
        }
        continue;
      }
      if (verdict.differs(cat(weighing, "/", reduction))) continue;
      verdict.close(what, loss(reduction)(y_true, y_pred, weight), file.tensor(value));
    }
  }
  void compare_gradient(const Json& expected) const {
    at::Tensor watched = y_pred.clone();
    GradientTape tape;
    tape.watch(watched);
    const at::Tensor value = loss("sum_over_batch_size")(y_true, watched);
    verdict.close("gradient", tape.gradient(value, watched), file.tensor(expected));
  }
};

void run_keras_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const Json& inputs = entry.at("inputs");
  const KerasCase own{file, inputs, verdict};
  for (const auto& [key, expected] : entry.at("expected").items()) {
    if (key == "grad_y_pred_no_weight") {
      own.compare_gradient(expected);
    } else {
      own.compare(key, expected);
    }
  }
}

// ---- the helpers of tf.nn

/// Calls `body(replica)` where the case wants it: in the replicas of `strategy`, in its scope
/// outside `run`, or in no strategy.
template <class Body>
std::vector<at::Tensor> results(distribute::MirroredStrategy* strategy, const std::string& place,
                                Body body) {
  if (place == "outside_scope" || (strategy == nullptr && place != "cross_replica"))
    return {body(0)};
  distribute::Strategy& own = strategy != nullptr ? static_cast<distribute::Strategy&>(*strategy)
                                                  : distribute::get_strategy();
  auto scope = own.scope();
  if (place == "cross_replica") return {body(0)};
  return own.local_results(
      own.run([&] { return body(distribute::get_replica_context()->replica_id_in_sync_group()); }));
}

void compare_results(const GoldenFile& file, const Json& expected,
                     const std::vector<at::Tensor>& found, Verdict& verdict) {
  if (expected.contains("error"))
    return verdict.fail(cat("no error, expected ", expected.at("error").get<std::string>()));
  const auto wanted = file.tensors(expected.at("value").at("list"));
  if (found.size() != wanted.size())
    return verdict.fail(cat(found.size(), " results, expected ", wanted.size()));
  for (std::size_t r = 0; r < wanted.size(); ++r)
    verdict.close(cat("replica ", r), found[r], wanted[r]);
}

/// RULES.md, 5: RuntimeError is FailedPrecondition, ValueError and InvalidArgumentError are
/// InvalidArgument; the context, or the argument, must be named.
void compare_error(const Json& expected, const Error& error, Verdict& verdict) {
  if (!expected.contains("error")) return verdict.fail(error.what());
  const std::string wanted = expected.at("error");
  const bool runtime = wanted == "RuntimeError";
  if (runtime != (error.code() == ErrorCode::kFailedPrecondition))
    verdict.fail(cat("the error is ", error.what(), ", expected ", wanted));
  const std::string message = error.what();
  if (message.find(runtime ? "cross-replica" : "global_batch_size") == std::string::npos)
    verdict.fail(cat("the message is ", message));
}

std::optional<int64_t> global_batch_size(const Json& inputs) {
  const Json size = inputs.value("global_batch_size", Json());
  if (size.is_null()) return std::nullopt;
  if (size.is_number()) return size.get<int64_t>();
  // "int32 tensor 4": the interface takes a number, which a tensor gives by item().
  const std::string text = size;
  const at::Tensor tensor = at::scalar_tensor(std::stoll(text.substr(text.rfind(' '))), at::kInt);
  return tensor.item<int64_t>();
}

at::Tensor per_replica(const GoldenFile& file, const Json& inputs, const char* key, int replica) {
  if (!inputs.contains(key)) return {};
  const Json& list = inputs.at(key);
  return file.tensor(
      list.at(std::min<std::size_t>(static_cast<std::size_t>(replica), list.size() - 1)));
}

at::Tensor helper(const GoldenFile& file, const Json& inputs, const std::string& function,
                  const std::string& detail, int replica) {
  if (function == "compute_average_loss") {
    const at::Tensor given = per_replica(file, inputs, "per_example_loss", replica);
    return nn::compute_average_loss(given.defined() ? given : at::ones({2}),
                                    global_batch_size(inputs),
                                    per_replica(file, inputs, "sample_weight", replica));
  }
  if (function == "scale_regularization_loss") {
    const Json& loss = inputs.at("loss");
    return nn::scale_regularization_loss(loss.is_number()
                                             ? at::scalar_tensor(loss.get<double>(), at::kFloat)
                                             : at::tensor(loss.get<std::vector<float>>()));
  }
  if (function == "keras_loss_in_run") {
    const at::Tensor values = per_replica(file, inputs, "values", replica);
    const Loss loss =
        keras::losses::MeanSquaredError({.reduction = keras::losses::reduction_from_name(detail)});
    return loss(at::zeros_like(values), values);
  }
  throw Unknown{function};
}

void run_helper_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const auto parts = split(entry.at("name").get<std::string>(), '/');  // strategy/function/detail/…
  const Json& inputs = entry.at("inputs");
  std::unique_ptr<distribute::MirroredStrategy> strategy;
  if (parts[0] == "mirrored2") {
    strategy = std::make_unique<distribute::MirroredStrategy>(
        distribute::MirroredStrategyOptions{.devices = {"cpu:0", "cpu:1"}});
  } else if (parts[0] != "default") {
    throw Unknown{cat("strategy ", parts[0])};
  }
  const Json& expected = entry.at("expected");
  try {
    compare_results(
        file, expected,
        results(strategy.get(), parts[2],
                [&](int replica) { return helper(file, inputs, parts[1], parts[2], replica); }),
        verdict);
  } catch (const Error& error) {
    compare_error(expected, error, verdict);
  }
}

}  // namespace

void run_losses_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  if (entry.at("name").get<std::string>().rfind("keras/", 0) == 0)
    return run_keras_case(file, entry, verdict);
  run_helper_case(file, entry, verdict);
}

}  // namespace tutti::golden
