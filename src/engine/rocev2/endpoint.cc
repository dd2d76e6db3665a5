// SPDX-License-Identifier: MIT
// The public face: forwards to EndpointImpl, so that drivers do not depend on the parts.
#include "engine/rocev2/endpoint.h"

#include "engine/rocev2/endpoint_impl.h"

namespace airdma::rocev2 {

Endpoint::Endpoint(const EndpointConfig& config, const model::MemoryTable& memory,
                   model::SendQueue& send_queue, model::ReceiveQueue& receive_queue)
    : impl_(std::make_unique<EndpointImpl>(config, memory, send_queue, receive_queue)) {}
Endpoint::~Endpoint() = default;

void Endpoint::modify(const QpAttributes& attributes, model::QpAttrMask mask, Time now) {
  impl_->modify(attributes, mask, now);
}
void Endpoint::on_packet(const wire::RocePacket& packet, const PacketOrigin& origin, Time now) {
  impl_->on_packet(packet, origin, now);
}
void Endpoint::on_unreadable(const wire::RoceParseError& error, const PacketOrigin& origin, Time) {
  impl_->on_unreadable(error, origin);
}
void Endpoint::on_deadline(Time now) { impl_->on_deadline(now); }
void Endpoint::fail(Time) { impl_->fail(); }
void Endpoint::on_unsent(const OutPacket& packet, Time) { impl_->on_unsent(packet); }

bool Endpoint::may_transmit() const { return impl_->may_transmit(); }
bool Endpoint::can_wait() const { return impl_->can_wait(); }
bool Endpoint::poll_transmit(PacketBatch& batch, Time now) {
  return impl_->poll_transmit(batch, now);
}
std::span<const model::Completion> Endpoint::completions() { return impl_->completions(); }
void Endpoint::clear_completions() { impl_->clear_completions(); }
std::optional<model::QpEvent> Endpoint::poll_event() { return impl_->poll_event(); }
std::optional<Time> Endpoint::next_deadline() const { return impl_->next_deadline(); }
bool Endpoint::sends_drained() const { return impl_->sends_drained(); }
model::QpState Endpoint::state() const { return impl_->state(); }
QpAttributes Endpoint::attributes() const { return impl_->attributes(); }
EndpointStats Endpoint::stats() const { return impl_->stats(); }
const char* Endpoint::failure() const { return impl_->failure(); }

}  // namespace airdma::rocev2
