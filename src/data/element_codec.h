#pragma once
// Elements as bytes. docs/formats.md has the layout.

#include <string>
#include <string_view>

#include "tutti/tensor/nest.h"

namespace tutti::data {

/// Appended to `bytes`. InvalidArgument for an element with a dataset in it, and for tensors that
/// are not dense.
void append_element(const Nest& element, std::string& bytes);
/// DataLoss when the bytes are not those of one element, before memory is taken for what they say.
Nest element_of(std::string_view bytes);

}  // namespace tutti::data
