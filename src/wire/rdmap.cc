// SPDX-License-Identifier: MIT
#include "wire/rdmap.h"

#include "wire/layout.h"

namespace airdma::wire {

std::optional<ReadRequest> parse_read_request(Bytes payload) {
  const auto layout = load<ReadRequestLayout>(payload);
  if (!layout) return std::nullopt;
  return ReadRequest{
      .sink_stag = Stag{layout->sink_stag.get()},
      .sink_offset = layout->sink_offset.get(),
      .read_bytes = layout->read_bytes.get(),
      .source_stag = Stag{layout->source_stag.get()},
      .source_offset = layout->source_offset.get(),
  };
}

std::size_t emit_read_request(MutableBytes out, const ReadRequest& request) {
  return store(out, ReadRequestLayout{
                        .sink_stag = request.sink_stag.value(),
                        .sink_offset = request.sink_offset,
                        .read_bytes = request.read_bytes,
                        .source_stag = request.source_stag.value(),
                        .source_offset = request.source_offset,
                    });
}

std::optional<Immediate> parse_immediate(Bytes payload) {
  const auto layout = load<ImmediateLayout>(payload);
  if (!layout) return std::nullopt;
  return Immediate{.data = layout->data.get()};
}

std::size_t emit_immediate(MutableBytes out, const Immediate& immediate) {
  return store(out, ImmediateLayout{.data = immediate.data});
}

std::optional<AtomicRequest> parse_atomic_request(Bytes payload) {
  const auto layout = load<AtomicRequestLayout>(payload);
  if (!layout) return std::nullopt;
  return AtomicRequest{
      .operation = static_cast<AtomicOperation>(AtomicRequestLayout::Operation::get(*layout)),
      .request_id = layout->request_id.get(),
      .stag = Stag{layout->stag.get()},
      .tagged_offset = layout->tagged_offset.get(),
      .add_or_swap_data = layout->add_or_swap_data.get(),
      .add_or_swap_mask = layout->add_or_swap_mask.get(),
      .compare_data = layout->compare_data.get(),
      .compare_mask = layout->compare_mask.get(),
  };
}

std::size_t emit_atomic_request(MutableBytes out, const AtomicRequest& request) {
  AtomicRequestLayout layout{
      .operation_word = {},
      .request_id = request.request_id,
      .stag = request.stag.value(),
      .tagged_offset = request.tagged_offset,
      .add_or_swap_data = request.add_or_swap_data,
      .add_or_swap_mask = request.add_or_swap_mask,
      .compare_data = request.compare_data,
      .compare_mask = request.compare_mask,
  };
  AtomicRequestLayout::Operation::set(layout, static_cast<std::uint32_t>(request.operation));
  return store(out, layout);
}

std::optional<AtomicResponse> parse_atomic_response(Bytes payload) {
  const auto layout = load<AtomicResponseLayout>(payload);
  if (!layout) return std::nullopt;
  return AtomicResponse{
      .request_id = layout->request_id.get(),
      .original_value = layout->original_value.get(),
  };
}

std::size_t emit_atomic_response(MutableBytes out, const AtomicResponse& response) {
  return store(out, AtomicResponseLayout{
                        .request_id = response.request_id,
                        .original_value = response.original_value,
                    });
}

}  // namespace airdma::wire
