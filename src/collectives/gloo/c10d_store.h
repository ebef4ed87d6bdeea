#pragma once
// For the sources that see c10d.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "collectives/store.h"
#include "tutti/base/error.h"

namespace tutti::collectives {

/// Our store as c10d wants it: while the connections are made.
class C10dStore : public c10d::Store {
 public:
  C10dStore(std::shared_ptr<collectives::Store> store, std::string prefix,
            std::chrono::milliseconds timeout)
      : c10d::Store(timeout), store_(std::move(store)), prefix_(std::move(prefix)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<C10dStore>(store_, prefix_, timeout_);
  }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    store_->set(prefix_ + key, std::string(value.begin(), value.end()));
  }
  std::vector<uint8_t> get(const std::string& key) override {
    const std::string value = store_->get(prefix_ + key, timeout_);
    return {value.begin(), value.end()};
  }
  int64_t add(const std::string& key, int64_t value) override {
    return store_->add(prefix_ + key, value);
  }
  bool deleteKey(const std::string& key) override {
    store_->remove(prefix_ + key);
    return true;
  }
  bool check(const std::vector<std::string>& keys) override {
    try {
      wait(keys, std::chrono::milliseconds(0));
      return true;
    } catch (const DeadlineExceeded&) {
      return false;
    }
  }
  int64_t getNumKeys() override { return 0; }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    std::vector<std::string> ours;
    for (const std::string& key : keys) ours.push_back(prefix_ + key);
    store_->wait(ours, timeout);
  }

 private:
  std::shared_ptr<collectives::Store> store_;
  std::string prefix_;
};

}  // namespace tutti::collectives
