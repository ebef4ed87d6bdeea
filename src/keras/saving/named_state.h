#pragma once
// Variables as a part of a checkpoint's state: tensors by name, and the names in their order.

#include <map>
#include <string>
#include <vector>

#include "tutti/distribute/variable.h"
#include "tutti/tensor/nest.h"

namespace tutti::keras {

/// The first ones, and how many more there are.
std::string shortened(const std::vector<std::string>& names);
/// A name that comes again gets a number: `w`, `w#2`.
std::vector<std::string> unique_names(std::vector<std::string> names);
std::vector<std::string> names_of(const std::vector<Variable>& variables);

Nest names_nest(const std::vector<std::string>& names);
/// InvalidArgument when `key` holds no names.
std::vector<std::string> names_in(const Nest& state, const std::string& key);

/// Null when `state` is no map or has no such key.
const Nest* entry_of(const Nest& state, const std::string& key);
/// InvalidArgument when there is none.
const Nest& required_entry(const Nest& state, const std::string& key);
/// InvalidArgument unless it is one int64, or one float64.
int64_t integer_in(const Nest& state, const std::string& key);
double number_in(const Nest& state, const std::string& key);

/// Under `names`, the values of `variables`.
Nest values_nest(const std::vector<std::string>& names, const std::vector<Variable>& variables);

/// What each of `own` is called in a file that has the names `in_file`: the same when both are the
/// same names, else what stands in its place there. InvalidArgument for another number.
std::vector<std::string> places_in_file(const std::vector<std::string>& own,
                                        const std::vector<std::string>& in_file);

/// For each variable the tensor of its name in `values`, a map. InvalidArgument unless all are
/// there, with shape and dtype of the variable.
std::vector<Tensor> values_for(const std::vector<Variable>& variables,
                               const std::vector<std::string>& names, const Nest& values);
void restore(const std::vector<Variable>& variables, const std::vector<Tensor>& values);

}  // namespace tutti::keras
