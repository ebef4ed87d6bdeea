#pragma once
// A link to a coordinator of the same process: the whole of coordination, without a network.

#include <memory>

#include "coordination/link.h"

namespace tutti::coordination {

/// `coordinator` must outlive the link.
std::unique_ptr<Link> make_in_process_link(Coordinator& coordinator);

}  // namespace tutti::coordination
