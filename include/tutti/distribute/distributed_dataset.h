#pragma once
// Datasets whose elements are nests of PerReplica.

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tutti/data/plan.h"
#include "tutti/data/tracked_pass.h"
#include "tutti/distribute/values.h"
#include "tutti/tensor/static_nest.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute {

/// The dynamic core: steps of one nest for each local replica.
class DistributedIterator {
 public:
  virtual ~DistributedIterator() = default;
  /// The next step, or nothing at the end (which is sticky).
  virtual std::optional<std::vector<Nest>> next() = 0;
  /// Rows of the last step over all workers, where that is known without asking them; else -1.
  virtual int64_t step_rows() const { return -1; }
  /// As data::Iterator's, with the steps that are made ahead. By default FailedPrecondition.
  virtual Nest save() const;
  virtual void restore(const Nest& state);
};

class DistributedPlan {
 public:
  virtual ~DistributedPlan() = default;
  virtual std::unique_ptr<DistributedIterator> iterator() = 0;
  /// Steps of one pass; data::kInfinite or data::kUnknown.
  virtual int64_t cardinality() const = 0;
  /// How cardinality() comes about, and how large batches are: "ceil(7 rows / 3) = 3; a global
  /// batch of 3, ceil(3 / 2) = 2 rows for each of 2 replicas".
  virtual std::string steps_text() const = 0;
  /// Spec of one replica's part.
  virtual SpecNest replica_spec() const = 0;
  virtual int num_local_replicas() const = 0;
  /// Which pieces of a batch the local replicas of worker w of W get, R of them: false, those from
  /// w * R on; true, pieces w, w + W, ….
  virtual bool deals_in_turn() const { return false; }
  /// False: there are other workers.
  virtual bool is_alone() const { return true; }
};

/// `PerReplicaSpec(TensorSpec(…), TensorSpec(…))` for each leaf; of a single replica that is alone
/// the leaf itself.
class DistributedSpec {
 public:
  DistributedSpec(SpecNest replica_spec, int num_local_replicas, bool is_alone = true);
  std::string to_string() const;
  const SpecNest& replica_spec() const { return replica_spec_; }

 private:
  SpecNest replica_spec_;
  int num_local_replicas_;
  bool is_alone_;
};
std::ostream& operator<<(std::ostream& out, const DistributedSpec& spec);

namespace internal {
void check_not_in_replica(const char* operation);

/// The per-replica form of an element type: Tensor → PerReplica<Tensor>, nests of it likewise.
template <class Element>
struct PerReplicaElement {
  using Type = tutti::internal::Regrouped<Element>;
  static Type make(std::vector<Nest> parts) {
    std::vector<Element> elements;
    elements.reserve(parts.size());
    for (Nest& part : parts) elements.push_back(from_nest<Element>(part));
    return regroup(std::move(elements));
  }
};
}  // namespace internal

/// Yields one element a step: nests of PerReplica. One pass, at the end of which it stays. A step
/// may not be taken inside a replica (InvalidArgument). After an exception that the dataset threw
/// the pass can go on behind the element that is missing.
template <class Element>
class DistributedDatasetIterator {
 public:
  using value_type = typename internal::PerReplicaElement<Element>::Type;
  explicit DistributedDatasetIterator(std::shared_ptr<DistributedPlan> plan)
      : plan_(std::move(plan)), core_(plan_->iterator()) {}

  /// The next step; OutOfRange at the end.
  value_type get_next() {
    auto step = get_next_as_optional();
    if (!step)
      throw OutOfRange(
          "get_next: end of the distributed dataset, expected one more step; make a new iterator "
          "or use get_next_as_optional");
    return std::move(*step);
  }
  std::optional<value_type> get_next_as_optional() {
    internal::check_not_in_replica("get_next");
    auto step = core_->next();
    if (!step) return std::nullopt;
    return internal::PerReplicaElement<Element>::make(std::move(*step));
  }
  /// data::Iterator's: where this pass stands, and going on there with the same number of replicas.
  Nest save() const { return core_->save(); }
  void restore(const Nest& state) { core_->restore(state); }
  /// The dataset's.
  DistributedSpec element_spec() const {
    return DistributedSpec(plan_->replica_spec(), plan_->num_local_replicas(), plan_->is_alone());
  }

 private:
  std::shared_ptr<DistributedPlan> plan_;
  std::unique_ptr<DistributedIterator> core_;
};

/// The place of an iterator as part of a checkpoint; both must be alive.
template <class Element>
std::shared_ptr<Trackable> trackable(DistributedDatasetIterator<Element>& iterator) {
  return data::internal::tracked_pass([&iterator] { return iterator.save(); },
                                      [&iterator](const Nest& state) { iterator.restore(state); });
}

/// A handle; copies share the plan. Every `for` and every iterator() starts from the beginning;
/// a shuffle has another order then. Replicas for which a step has no rows left get zero rows. With
/// several workers all end in the same step, and must take the same steps: a worker whose data end
/// before gets zero rows meanwhile. They ask each other at each step only where the numbers of
/// steps are unknown or differ. With
/// TUTTI_LOG=debug every piece that a replica gets is described by a line of the log.
template <class Element>
class DistributedDataset {
 public:
  using element_type = Element;
  using value_type = typename internal::PerReplicaElement<Element>::Type;
  explicit DistributedDataset(std::shared_ptr<DistributedPlan> plan) : plan_(std::move(plan)) {}

  DistributedDatasetIterator<Element> iterator() const {
    return DistributedDatasetIterator<Element>(plan_);
  }
  /// Steps of one pass; data::kInfinite or data::kUnknown.
  int64_t cardinality() const { return plan_->cardinality(); }
  DistributedSpec element_spec() const {
    return DistributedSpec(plan_->replica_spec(), plan_->num_local_replicas(), plan_->is_alone());
  }
  const std::shared_ptr<DistributedPlan>& plan() const { return plan_; }
  /// The dynamic form, which `fit` takes.
  operator DistributedDataset<Nest>() const { return DistributedDataset<Nest>(plan_); }  // NOLINT

  class Cursor {
   public:
    explicit Cursor(DistributedDatasetIterator<Element> iterator) : iterator_(std::move(iterator)) {
      ++*this;
    }
    value_type& operator*() { return *step_; }
    Cursor& operator++() {
      step_ = iterator_.get_next_as_optional();
      return *this;
    }
    bool operator!=(std::nullptr_t) const { return step_.has_value(); }

   private:
    DistributedDatasetIterator<Element> iterator_;
    std::optional<value_type> step_;
  };
  Cursor begin() const { return Cursor(iterator()); }
  std::nullptr_t end() const { return nullptr; }

 private:
  std::shared_ptr<DistributedPlan> plan_;
};

}  // namespace tutti::distribute
