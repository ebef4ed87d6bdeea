#pragma once
// Passes over elements in complete files.

#include <memory>

#include "data/element_files.h"
#include "data/iteration.h"
#include "tutti/data/plans.h"

namespace tutti::data {

/// The elements of all shards: one of each by turns, those that have ended left out. With a
/// `reader`, those of the dataset that it makes of the shards' datasets.
std::unique_ptr<Iterator> read_elements(const ElementFiles& files, const ElementIndex& index,
                                        const ShardReader& reader);

/// `, reader_func=function` and the like: what is set, as arguments of a plan.
std::string saving_text(const Saving& saving);

/// InvalidArgument unless there is a path, and a compression of that name.
ElementFiles files_in_folder(const char* operation, const std::string& path,
                             const std::string& compression);
/// NotFound when it cannot be made.
void make_folder(const char* operation, const std::string& path);

}  // namespace tutti::data
