#pragma once

namespace tutti::rpc {

/// From now on gRPC's own lines go into our log: its errors as warnings, each place in its sources
/// once, the rest at level debug. Cheap to call again.
void take_over_grpc_log();

}  // namespace tutti::rpc
