// A shard that is kept in a file, which has all that the host has when everything is offloaded:
// masters, the optimizer's state, and gradients, which of a large model are too large for the host,
// too. The host has buffers, whatever the size of the model: two for what goes to the device or
// comes from it, in each direction, in pieces (file_transfers.h), and two for all that the
// optimizer needs of a unit (paged_tensors.h). Where units are updated in backward, gradients do
// not go to the file: the host has two, as without it. The file is what counts: a unit's next
// gather reads what was written after its update, also where values are resident. [Note: offload]
// in host_home.h.
#pragma once

#include "comm/fsdp/home/file_transfers.h"
#include "comm/fsdp/home/host_home.h"
#include "comm/fsdp/home/paged_tensors.h"

namespace fsdp::comm {

class FileHomes;

class FileHome : public HostHome {
 public:
  FileHome(FileHomes& homes, ShardSpec spec);
  void written() override;
  void keep_gradient(const Tensor& shard, bool has_memory) override;
  void zero_gradient() override;
  void hand_over(const EventPtr& reduced, const Flags& flags) override;
  void clear_gradient() override;
  void forget_events() override;

  State add_state(const Tensor& master, DType dtype) override;
  void begin(Use use) override;
  void end(Use use) override;

 private:
  EventPtr load_values(const Tensor& to, const EventPtr& free) override;
  EventPtr load_gradient(const EventPtr& free) override;
  EventPtr send_gradient(const EventPtr& reduced) override;

  FileHomes& file_homes_;
  std::optional<PagedTensors> paged_;  // what the optimizer works on; none: frozen
  EventPtr gradient_written_;          // since when the file has it; may be null
};

// Streams of the homes of a rank, besides the host's two:
//   from_file, to_file   reads before from_host, and writes after to_host
//   state_in, state_out  what the optimizer works on, and zeros of absent gradients
// A unit that forward wants is not behind units that are still updated, nor is a read behind a
// write that it has nothing to do with.
class FileHomes : public HostHomes {
 public:
  FileHomes(const HomeRank& rank, Backend& host, Backend& file);

  std::shared_ptr<ShardHome> keep(ShardSpec spec) override;
  void allocate() override;
  void allocate_pages() override { pages_.allocate(); }
  void drop_gradients() override;
  void before_masters_are_written() override;
  void masters_written() override;
  std::vector<Stream*> streams() const override;
  void forget_events() override;

  Backend& file() const { return file_; }
  Stream& from_file() const { return *from_file_; }
  Stream& state_in() const { return *state_in_; }
  FileTransfers& transfers() { return transfers_; }
  PageBuffers& pages() { return pages_; }

 protected:
  void wait_for_gradients() override;

 private:
  Backend& file_;
  std::unique_ptr<Stream> from_file_, to_file_, state_in_, state_out_;
  FileTransfers transfers_;
  PageBuffers pages_;
};

}  // namespace fsdp::comm
