// SPDX-License-Identifier: MIT
// The public face: forwards to EndpointImpl, so that drivers do not depend on the parts.
#include "engine/iwarp/endpoint.h"

#include "engine/iwarp/endpoint_impl.h"

namespace airdma::iwarp {

Endpoint::Endpoint(const EndpointConfig& config, const model::MemoryTable& memory,
                   model::SendQueue& send_queue, model::ReceiveQueue& receive_queue)
    : impl_(std::make_unique<EndpointImpl>(config, memory, send_queue, receive_queue)) {}
Endpoint::~Endpoint() = default;

void Endpoint::start(const StreamParams& params, Time now) { impl_->start(params, now); }
void Endpoint::on_bytes(Bytes bytes, Time) { impl_->on_bytes(bytes); }
std::size_t Endpoint::take_bytes(Bytes bytes, Time) { return impl_->take_bytes(bytes); }
void Endpoint::on_transmitted(std::size_t bytes, Time) { impl_->on_transmitted(bytes); }
void Endpoint::on_stream_end(StreamEnd end, Time now) { impl_->on_stream_end(end, now); }
void Endpoint::on_receives_posted(Time now) { impl_->on_receives_posted(now); }
void Endpoint::on_deadline(Time now) { impl_->on_deadline(now); }
void Endpoint::disconnect(Time) { impl_->disconnect(); }
void Endpoint::fail(Time) { impl_->fail(); }
void Endpoint::set_remote_access(model::AccessMask access) { impl_->set_remote_access(access); }
void Endpoint::hold_sends(bool held, bool notify) { impl_->hold_sends(held, notify); }

bool Endpoint::may_transmit() const { return impl_->may_transmit(); }
std::size_t Endpoint::poll_transmit(MutableBytes out, Time now) {
  return impl_->poll_transmit(out, now);
}
std::size_t Endpoint::poll_transmit(Gather& gather, Time now) {
  return impl_->poll_transmit(gather, now);
}
void Endpoint::on_payload_lost(Time) { impl_->on_payload_lost(); }
std::span<const model::Completion> Endpoint::completions() { return impl_->completions(); }
void Endpoint::clear_completions() { impl_->clear_completions(); }
std::optional<model::QpEvent> Endpoint::poll_event() { return impl_->poll_event(); }
std::optional<Time> Endpoint::next_deadline() const { return impl_->next_deadline(); }
bool Endpoint::wants_input() const { return impl_->wants_input(); }
bool Endpoint::wants_receives() const { return impl_->wants_receives(); }
bool Endpoint::sends_drained() const { return impl_->sends_drained(); }
EndpointState Endpoint::state() const { return impl_->state(); }
StreamRequest Endpoint::stream_request() const { return impl_->stream_request(); }
const EndpointStats& Endpoint::stats() const { return impl_->stats(); }
const char* Endpoint::failure() const { return impl_->failure(); }

}  // namespace airdma::iwarp
