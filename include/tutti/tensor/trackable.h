#pragma once
// What can be part of a checkpoint.

#include <concepts>
#include <memory>
#include <utility>

#include "tutti/tensor/nest.h"

namespace tutti {

/// An object whose state is a nest of tensors and strings. Called on one thread at a time, outside
/// replicas.
class Trackable {
 public:
  virtual ~Trackable() = default;
  /// The state now, in tensors of its own. FailedPrecondition while there is none yet (a model that
  /// is not built).
  virtual Nest state() const = 0;
  /// InvalidArgument, with what does not fit, unless set_state could take `state`. Changes nothing.
  virtual void check_state(const Nest& state) const = 0;
  /// Takes a state that check_state let pass: all of it. An object that is not built yet keeps it
  /// until it is.
  virtual void set_state(const Nest& state) = 0;
  /// False while a state waits for the object to be built.
  virtual bool state_taken() const { return true; }
};

/// A handle to a Trackable: a std::shared_ptr to one's own, or any object for which there is a
/// function `std::shared_ptr<Trackable> trackable(T&)` beside its type: Variable, models,
/// optimizers, metrics, iterators of datasets. The object must outlive the handle unless it is a
/// handle itself.
class AnyTrackable {
 public:
  template <class T>
  requires std::derived_from<T, Trackable> AnyTrackable(std::shared_ptr<T> object)
      : object_(std::move(object)) {}  // NOLINT
  template <class T>
  requires requires(T& object) {
    { trackable(object) } -> std::convertible_to<std::shared_ptr<Trackable>>;
  }
  AnyTrackable(T& object) : object_(trackable(object)) {}  // NOLINT
  Trackable* operator->() const { return object_.get(); }
  Trackable& operator*() const { return *object_; }

 private:
  std::shared_ptr<Trackable> object_;
};

}  // namespace tutti
