#pragma once
// Makers of classes that are not Tutti's, found by name.

#include <string>
#include <utility>

#include "tutti/keras/custom_objects.h"

namespace tutti::keras::layers {

inline const auto& maker_of(const CustomObject& object, const Layer*) { return object.make_layer; }
inline const auto& maker_of(const CustomObject& object, const Initializer*) {
  return object.make_initializer;
}
inline const auto& maker_of(const CustomObject& object, const Regularizer*) {
  return object.make_regularizer;
}
inline const auto& maker_of(const CustomObject& object, const Constraint*) {
  return object.make_constraint;
}
inline const auto& maker_of(const CustomObject& object, const keras::Activation*) {
  return object.make_activation;
}
/// The user's maker of this class; null where there is none.
template <class Handle>
auto custom_maker(const CustomObjects* custom, const std::string& class_name)
    -> decltype(&maker_of(std::declval<const CustomObject&>(), static_cast<Handle*>(nullptr))) {
  if (custom == nullptr) return nullptr;
  const auto found = custom->find(class_name);
  if (found == custom->end()) return nullptr;
  const auto& maker = maker_of(found->second, static_cast<Handle*>(nullptr));
  return maker ? &maker : nullptr;
}

}  // namespace tutti::keras::layers
