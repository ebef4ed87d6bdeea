#include "preemption/channel.h"

#include <charconv>

#include "tutti/base/text.h"

namespace tutti::preemption {
namespace {

std::string key_of(const char* name, int round) { return cat(name, "/", round); }

int64_t number_of(const std::string& key, const std::string& text) {
  int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) {
    throw Internal(cat("preemption [", key, "]: \"", text,
                       "\", expected a number; do all workers run the same program?"));
  }
  return number;
}

}  // namespace

std::string PreemptionChannel::name_of(int worker) const { return cat("worker:", worker); }

bool PreemptionChannel::lead(const std::string& why) {
  if (!put("leader", std::to_string(worker_))) return false;
  announce(cat(name_of(worker_), ": ", why));
  return true;
}

void PreemptionChannel::hold(int round) { put(key_of("hold", round), "1"); }
bool PreemptionChannel::is_held(int round) { return find(key_of("hold", round)).has_value(); }

void PreemptionChannel::acknowledge(int round, int64_t begun) {
  put(cat(key_of("acknowledged", round), "/", worker_), std::to_string(begun));
}
std::vector<std::optional<int64_t>> PreemptionChannel::acknowledgements(int round) {
  return numbers(key_of("acknowledged", round));
}

void PreemptionChannel::decide(int round, const Decision& decision) {
  put(key_of("decided", round), cat(decision.step, decision.last ? " last" : " first"));
}

std::optional<Decision> PreemptionChannel::decided(int round) {
  const std::string key = key_of("decided", round);
  const std::optional<std::string> text = find(key);
  if (!text) return std::nullopt;
  const auto space = text->find(' ');
  const std::string kind = space == std::string::npos ? "" : text->substr(space + 1);
  const bool known = kind == "last" || kind == "first";
  return Decision{.step = number_of(key, known ? text->substr(0, space) : *text),
                  .last = kind == "last"};
}

void PreemptionChannel::say_saved() { put(cat("saved/", worker_), "1"); }
std::vector<std::optional<int64_t>> PreemptionChannel::saved() { return numbers("saved"); }
void PreemptionChannel::say_gone(int64_t steps) {
  put(cat("gone/", worker_), std::to_string(steps));
}
std::vector<std::optional<int64_t>> PreemptionChannel::gone() { return numbers("gone"); }

std::vector<std::optional<int64_t>> PreemptionChannel::numbers(const std::string& name) {
  std::vector<std::optional<int64_t>> numbers(static_cast<std::size_t>(num_workers_));
  const std::string prefix = name + "/";
  for (const auto& [key, value] : list(prefix)) {
    const int64_t worker = number_of(key, key.substr(prefix.size()));
    if (worker < 0 || worker >= num_workers_) {
      throw Internal(cat("preemption [", key, "]: one of ", num_workers_,
                         " workers; do all workers run the same program?"));
    }
    numbers[static_cast<std::size_t>(worker)] = number_of(key, value);
  }
  return numbers;
}

// --- in one process ----------------------------------------------------------------------------

bool InProcessTable::put(const std::string& key, const std::string& value) {
  MutexLock lock(mutex_);
  return values_.emplace(key, value).second;
}

std::optional<std::string> InProcessTable::find(const std::string& key) {
  MutexLock lock(mutex_);
  const auto found = values_.find(key);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::pair<std::string, std::string>> InProcessTable::list(const std::string& prefix) {
  MutexLock lock(mutex_);
  std::vector<std::pair<std::string, std::string>> entries;
  for (auto at = values_.lower_bound(prefix);
       at != values_.end() && at->first.compare(0, prefix.size(), prefix) == 0; ++at)
    entries.emplace_back(*at);
  return entries;
}

namespace {

class InProcessChannel final : public PreemptionChannel {
 public:
  InProcessChannel(std::shared_ptr<InProcessTable> table, int worker, int num_workers)
      : PreemptionChannel(worker, num_workers), table_(std::move(table)) {}

 private:
  bool put(const std::string& key, const std::string& value) override {
    return table_->put(key, value);
  }
  std::optional<std::string> find(const std::string& key) override { return table_->find(key); }
  std::vector<std::pair<std::string, std::string>> list(const std::string& prefix) override {
    return table_->list(prefix);
  }

  std::shared_ptr<InProcessTable> table_;
};

}  // namespace

std::unique_ptr<PreemptionChannel> in_process_channel(std::shared_ptr<InProcessTable> table,
                                                      int worker, int num_workers) {
  return std::make_unique<InProcessChannel>(std::move(table), worker, num_workers);
}

std::unique_ptr<PreemptionChannel> sole_channel() {
  return in_process_channel(std::make_shared<InProcessTable>(), 0, 1);
}

}  // namespace tutti::preemption
