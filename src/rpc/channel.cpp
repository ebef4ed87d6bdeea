#include "rpc/channel.h"

#include "rpc/credentials.h"
#include "rpc/grpc_log.h"

namespace tutti::rpc {

Channel::Channel(const std::string& address, const Security& security) : address_(address) {
  take_over_grpc_log();
  check_security("connect", address, security);
  if (!security.token_file.empty()) token_ = std::make_unique<TokenFile>(security.token_file);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMostMessageBytes);
  arguments.SetMaxSendMessageSize(kMostMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepAliveEveryMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepAliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);  // a connection's own time limit
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // Two channels to one server share no connection: the end of one is the end of one task.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (!security.server_name.empty()) arguments.SetSslTargetNameOverride(security.server_name);
  channel_ = grpc::CreateCustomChannel(address, channel_credentials(security), arguments);
}

void Channel::prepare(grpc::ClientContext& context, std::chrono::milliseconds timeout) const {
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                    gpr_time_from_millis(timeout.count(), GPR_TIMESPAN)));
  prepare_stream(context);
}

void Channel::prepare_stream(grpc::ClientContext& context) const {
  if (token_) context.AddMetadata(kTokenKey, token_->shown());
}

}  // namespace tutti::rpc
