#pragma once
// The states of iterators, as Iterator::save gives them: maps of tensors, strings and nests.

#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/seed.h"
#include "tutti/tensor/nest.h"

namespace tutti::data::state {

Nest number(int64_t value);
Nest random_bits(const RandomBits& random);
/// Elements as a list. FailedPrecondition when one has a dataset in it that is not made of elements
/// at hand (a window is).
Nest elements(const std::vector<Nest>& elements);
Nest element(const Nest& element);
/// What stands in a buffer: an element, an exception in its place (its code and text are kept), or
/// neither.
Nest item(const std::optional<Nest>& item, const std::exception_ptr& error);

// What was saved under `key`. DataLoss when it is not there, is of another kind, or outside
// [least, most].
const Nest& part(const Nest& state, const std::string& key);
int64_t number_in(const Nest& state, const std::string& key,
                  int64_t least = std::numeric_limits<int64_t>::min(),
                  int64_t most = std::numeric_limits<int64_t>::max());
void set_random_bits(const Nest& state, const std::string& key, RandomBits& random);
std::vector<Nest> elements_in(const Nest& state, const std::string& key);
Nest element_in(const Nest& state, const std::string& key);
void item_in(const Nest& state, std::optional<Nest>& item, std::exception_ptr& error);
/// The list under `key`.
const std::vector<Nest>& list_in(const Nest& state, const std::string& key);
/// A vector of int64.
Nest numbers(const std::vector<int64_t>& values);
std::vector<int64_t> numbers_in(const Nest& state, const std::string& key);

}  // namespace tutti::data::state
