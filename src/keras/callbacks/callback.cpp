// Logs, histories, handles and lists of callbacks.

#include "tutti/keras/callbacks/callback.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/keras/callbacks/output.h"

namespace tutti::keras {

double& Logs::operator[](const std::string& name) {
  auto found = find(name);
  if (found != end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [key, unused] : *this) names.push_back(key);
  throw NotFound(
      cat("logs: \"", name, "\", expected one of ", names.empty() ? "none" : join(names, ", ")));
}
double Logs::operator[](const std::string& name) const { return const_cast<Logs&>(*this)[name]; }

void History::add(int64_t epoch, const Logs& logs) {
  this->epoch.push_back(epoch);
  for (const auto& [name, value] : logs) {
    history[name].push_back(value);
    epochs_of[name].push_back(epoch);
  }
}

namespace callbacks {

std::shared_ptr<Callback> AnyCallback::checked(std::shared_ptr<Callback> callback) {
  if (callback == nullptr) throw InvalidArgument("callback: an empty pointer, expected a callback");
  return callback;
}

Frequency::Frequency(const std::string& word) : batches_(word == "batch" ? 1 : 0) {
  if (word != "epoch" && word != "batch")
    throw InvalidArgument(cat("frequency (save_freq, update_freq): \"", word,
                              "\", expected \"epoch\", \"batch\" or a number of batches"));
}
Frequency::Frequency(int64_t batches) : batches_(batches) {
  if (batches < 1)
    throw InvalidArgument(cat("frequency (save_freq, update_freq): ", batches,
                              ", expected \"epoch\", \"batch\" or at least 1 batch"));
}

CallbackList::CallbackList(std::vector<AnyCallback> callbacks, const CallbackListOptions& options)
    : callbacks_(std::move(callbacks)),
      model_(options.model),
      params_{options.verbose, options.epochs, options.steps} {
  if (options.add_history) callbacks_.push_back(make(History()));
  if (options.add_progbar && options.verbose != 0) callbacks_.push_back(ProgbarLogger());
  set_model(model_);
  set_params(params_);
}
void CallbackList::append(AnyCallback callback) {
  callback->set_model(model_);
  callback->set_params(params_);
  callbacks_.push_back(std::move(callback));
}
void CallbackList::set_model(Model* model) {
  model_ = model;
  for (const AnyCallback& callback : callbacks_) callback->set_model(model);
}
void CallbackList::set_params(const Params& params) {
  params_ = params;
  for (const AnyCallback& callback : callbacks_) callback->set_params(params);
}

void CallbackList::on_train_begin(const Logs& logs) {
  for (const AnyCallback& callback : callbacks_) callback->on_train_begin(logs);
}
void CallbackList::on_train_end(const Logs& logs) {
  for (const AnyCallback& callback : callbacks_) callback->on_train_end(logs);
}
void CallbackList::on_epoch_begin(int64_t epoch, const Logs& logs) {
  for (const AnyCallback& callback : callbacks_) callback->on_epoch_begin(epoch, logs);
}
void CallbackList::on_epoch_end(int64_t epoch, Logs& logs) {
  for (const AnyCallback& callback : callbacks_) callback->on_epoch_end(epoch, logs);
}
void CallbackList::on_train_batch_begin(int64_t batch, const Logs& logs) {
  for (const AnyCallback& callback : callbacks_) callback->on_train_batch_begin(batch, logs);
}
void CallbackList::on_train_batch_end(int64_t batch, const Logs& logs) {
  for (const AnyCallback& callback : callbacks_) callback->on_train_batch_end(batch, logs);
}
void CallbackList::on_test_begin(const Logs& logs) {
  for (const AnyCallback& callback : callbacks_) callback->on_test_begin(logs);
}
void CallbackList::on_test_end(const Logs& logs) {
  for (const AnyCallback& callback : callbacks_) callback->on_test_end(logs);
}
void CallbackList::on_test_batch_begin(int64_t batch, const Logs& logs) {
  for (const AnyCallback& callback : callbacks_) callback->on_test_batch_begin(batch, logs);
}
void CallbackList::on_test_batch_end(int64_t batch, const Logs& logs) {
  for (const AnyCallback& callback : callbacks_) callback->on_test_batch_end(batch, logs);
}
void CallbackList::on_predict_begin(const Logs& logs) {
  for (const AnyCallback& callback : callbacks_) callback->on_predict_begin(logs);
}
void CallbackList::on_predict_end(const Logs& logs) {
  for (const AnyCallback& callback : callbacks_) callback->on_predict_end(logs);
}
void CallbackList::on_predict_batch_begin(int64_t batch, const Logs& logs) {
  for (const AnyCallback& callback : callbacks_) callback->on_predict_batch_begin(batch, logs);
}
void CallbackList::on_predict_batch_end(int64_t batch, const Logs& logs) {
  for (const AnyCallback& callback : callbacks_) callback->on_predict_batch_end(batch, logs);
}

const keras::History& CallbackList::history() const {
  for (const AnyCallback& callback : callbacks_) {
    if (const auto* history = dynamic_cast<const History*>(callback.get().get())) return *history;
  }
  throw FailedPrecondition(
      "CallbackList [history]: no History among the callbacks, expected one; set add_history");
}

void History::on_train_begin(const Logs& logs) {
  static_cast<keras::History&>(*this) = keras::History();
}

}  // namespace callbacks
}  // namespace tutti::keras
